// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/shared_options.h"

namespace quire {
namespace {

struct ExplainOptions {
  std::string request_id;
};

// The numbers behind the explanation, for a request that waits on a worker.
void PrintWait(const v1::ExplainWaitResponse& wait) {
  if (wait.worker().empty() || wait.reason() == v1::WAIT_REASON_RUNS) return;
  std::printf("  ahead of it   %s\n  rows          %u wanted, %u free\n",
              Counted(wait.requests_ahead(), "request").c_str(), wait.rows_needed(), wait.rows_free());
  std::printf("  blocks        %u wanted, %u free, %u kept free for running requests to grow, %u pinned\n",
              wait.blocks_needed(), wait.blocks_free(), wait.blocks_kept(), wait.blocks_pinned());
  std::printf("  prefix cache  %s of its prompt\n", Counted(wait.cached_prompt_tokens(), "token").c_str());
  if (wait.is_swapped()) std::printf("  it was preempted; its blocks are in the host tier\n");
}

int RunExplain(const ExplainOptions& options, const CommandContext& context) {
  if (const absl::Status valid = CheckRequestId(options.request_id); !valid.ok()) return ReportUsage(valid.message());
  Client client(context.client);
  const absl::StatusOr<v1::ExplainWaitResponse> wait = client.ExplainWait(options.request_id);
  if (!wait.ok()) return ReportError(wait.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*wait);
  } else if (wait->worker().empty()) {
    std::printf("%s %s\n", options.request_id.c_str(), wait->explanation().c_str());
  } else {
    std::printf("%s, on worker %s, %s\n", options.request_id.c_str(), wait->worker().c_str(),
                wait->explanation().c_str());
    PrintWait(*wait);
  }
  return kExitOk;
}

}  // namespace

void AddExplainCommand(CommandList* list) {
  const auto [command, options] = list->Add("explain", "Say why a request does not run.", RunExplain);
  AddRequestIdArgument(command, &options->request_id);
}

}  // namespace quire
