// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/terminal/terminal.h"
#include "client/views/state_text.h"

namespace quire {
namespace {

struct RequestsOptions {
  std::string worker;
  uint32_t max_requests = 100;
};

int RunRequests(const RequestsOptions& options, const CommandContext& context) {
  v1::ListRequestsRequest request;
  request.set_worker(options.worker);
  request.set_max_requests(options.max_requests);
  Client client(context.client);
  const absl::StatusOr<v1::ListRequestsResponse> list = client.ListRequests(request);
  if (!list.ok()) return ReportError(list.status(), context.client.endpoint);
  if (list->num_requests() == 0) {
    // A manager that stands by has no requests, but the leader may have some.
    const absl::Status leads = client.GetModel().status();
    if (IsStandbyError(leads)) return ReportError(leads, context.client.endpoint);
  }
  if (context.format == OutputFormat::kJson) {
    PrintJson(*list);
    return kExitOk;
  }
  std::printf("%-32s %-8s %8s %7s %7s %9s %7s %7s %7s  %-12s %s\n", "REQUEST", "STATE", "AGE", "PROMPT", "CACHED",
              "GENERATED", "SAMPLES", "BLOCKS", "SHARED", "TENANT", "WORKER");
  for (const v1::RequestSummary& summary : list->requests()) {
    std::printf("%-32s %-8s %8s %7u %7u %9llu %7u %7u %7u  %-12s %s\n", Printable(summary.request_id()).c_str(),
                summary.is_detached() ? "detached" : StateOf(summary.state()), DescribeAge(summary.age_ms()).c_str(),
                summary.prompt_tokens(), summary.cached_prompt_tokens(), Big(summary.generated_tokens()),
                summary.num_sequences(), summary.blocks(), summary.shared_blocks(),
                summary.tenant().empty() ? "-" : summary.tenant().c_str(), summary.worker().c_str());
  }
  const uint32_t num_left = list->num_requests() - list->requests_size();
  if (num_left > 0) std::printf("and %u more; --max-requests shows them\n", num_left);
  return kExitOk;
}

}  // namespace

void AddRequestsCommand(CommandList* list) {
  const auto [command, options] = list->Add(
      "requests",
      "List the running and waiting requests, the running ones of each worker first. The client of a detached "
      "one has left and may resume it. `quirectl explain` says why a request waits, `quirectl tree` which blocks it "
      "holds.",
      RunRequests);
  AddWorkerOption(command, &options->worker);
  AddOption(command, "-n,--max-requests", &options->max_requests, "NUMBER [100]",
            "Largest number of requests to list for each worker, 1 .. 1000")
      ->check(InRange<uint32_t>());
}

}  // namespace quire
