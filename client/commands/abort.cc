// SPDX-License-Identifier: Apache-2.0

#include "client/commands/commands.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

struct AbortOptions {
  std::string request_id;
};

int RunAbort(const AbortOptions& options, const CommandContext& context) {
  if (const absl::Status valid = CheckRequestId(options.request_id); !valid.ok()) return ReportUsage(valid.message());
  Client client(context.client);
  const absl::Status aborted = client.Abort(options.request_id);
  return aborted.ok() ? kExitOk : ReportError(aborted, context.client.endpoint);
}

}  // namespace

void AddAbortCommand(CommandList* list) {
  const auto [command, options] = list->Add("abort", "End a running request.", RunAbort);
  AddRequestIdArgument(command, &options->request_id);
}

}  // namespace quire
