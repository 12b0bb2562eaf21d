// SPDX-License-Identifier: Apache-2.0

#include "client/commands/completion_script.h"

#include <cstdio>

#include "client/commands/commands.h"

namespace quire {
namespace {

struct CompletionOptions {
  std::string shell;
};

int RunCompletion(const CompletionOptions& options, const CommandContext& context) {
  const std::string script = options.shell == "bash"  ? BashCompletion(context.program)
                             : options.shell == "zsh" ? ZshCompletion(context.program)
                                                      : FishCompletion(context.program);
  std::fputs(script.c_str(), stdout);
  return kExitOk;
}

}  // namespace

void AddCompletionCommand(CommandList* list) {
  const auto [command, options] = list->AddOffline(
      "completion",
      "Print a script that completes commands, options and values. For bash: source <(quirectl completion bash)",
      RunCompletion);
  command->add_option("shell", options->shell, "bash, zsh or fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required()
      ->option_text(" ");
}

}  // namespace quire
