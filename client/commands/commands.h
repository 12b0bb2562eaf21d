// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_COMMANDS_COMMANDS_H_
#define QUIRE_CLIENT_COMMANDS_COMMANDS_H_

#include "client/commands/command_list.h"

// The commands of quirectl. Each function declares one command on `list`; the file of the same name implements it.

namespace quire {

void AddAbortCommand(CommandList* list);
void AddAuditCommand(CommandList* list);
void AddBenchCommand(CommandList* list);
void AddBlocksCommand(CommandList* list);
void AddChatCommand(CommandList* list);
void AddCompletionCommand(CommandList* list);
void AddDetokenizeCommand(CommandList* list);
void AddDoctorCommand(CommandList* list);
void AddDrainCommand(CommandList* list);
void AddEmbedCommand(CommandList* list);
void AddExplainCommand(CommandList* list);
void AddFlushCommand(CommandList* list);
void AddGenerateCommand(CommandList* list);
void AddHealthCommand(CommandList* list);
void AddModelCommand(CommandList* list);
void AddPinCommand(CommandList* list);
void AddRequestsCommand(CommandList* list);
void AddStatusCommand(CommandList* list);
void AddTokenizeCommand(CommandList* list);
void AddTopCommand(CommandList* list);
void AddTreeCommand(CommandList* list);
void AddUndrainCommand(CommandList* list);
void AddUnpinCommand(CommandList* list);

}  // namespace quire

#endif  // QUIRE_CLIENT_COMMANDS_COMMANDS_H_
