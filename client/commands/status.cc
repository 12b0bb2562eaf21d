// SPDX-License-Identifier: Apache-2.0

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/views/state_text.h"

namespace quire {
namespace {

// Lines about pinned blocks and the host tier, each only if there is something to say.
std::string DescribeBlocks(const v1::WorkerStatus& worker) {
  const v1::BlockCounts& blocks = worker.blocks();
  std::string lines;
  if (blocks.pinned() > 0) {
    absl::StrAppend(&lines, "  ", Counted(blocks.pinned(), "block"), blocks.pinned() == 1 ? " is" : " are",
                    " pinned\n");
  }
  if (blocks.host_total() > 0) {
    absl::StrAppend(&lines, "  host tier: ", blocks.host_used(), " of ", blocks.host_total(), " blocks; ",
                    Counted(worker.swapped_requests(), "swapped request"), "\n");
  }
  return lines;
}

// `generation` is the one that new requests go to.
void PrintWorker(const v1::WorkerStatus& worker, uint64_t generation, int address_width) {
  const v1::BlockCounts& blocks = worker.blocks();
  const auto count = [&](uint32_t num_blocks) { return worker.has_blocks() ? absl::StrCat(num_blocks) : "-"; };
  std::printf("%-*s %-11s %8u %8u %8s %8s %8s %9llu\n", address_width, worker.address().c_str(), StateOf(worker),
              worker.running_requests(), worker.waiting_requests(), count(blocks.used()).c_str(),
              count(blocks.evictable()).c_str(), count(blocks.free()).c_str(), Big(worker.steps()));
  std::printf("%s", DescribeBlocks(worker).c_str());
  if (worker.generation() != 0 && worker.generation() != generation) {
    std::printf("  it is of generation %llu, model %s, and gets no new requests\n", Big(worker.generation()),
                worker.model_name().c_str());
  }
  if (!worker.last_error().empty()) std::printf("  %s\n", worker.last_error().c_str());
  std::printf("%s", RankLines(worker).c_str());
}

int RunStatus(const NoOptions& /*options*/, const CommandContext& context) {
  Client client(context.client);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return ReportError(status.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    PrintJson(*status);
    return kExitOk;
  }
  std::printf("quire-manager %s, up %s, model %s\n", status->version().c_str(),
              absl::FormatDuration(absl::Seconds(status->uptime_seconds())).c_str(),
              status->model_name().empty() ? "not known yet" : status->model_name().c_str());
  for (const std::string& warning : status->warnings()) std::printf("warning: %s\n", warning.c_str());
  if (status->is_draining()) std::printf("draining: new requests are refused\n");
  std::printf("%llu prompt tokens, %llu of them cached, %llu generated tokens since start\n\n",
              Big(status->prompt_tokens()), Big(status->cached_prompt_tokens()), Big(status->completion_tokens()));
  const int width = AddressWidth(*status);
  std::printf("%-*s %-11s %8s %8s %8s %8s %8s %9s\n", width, "WORKER", "STATE", "RUNNING", "WAITING", "USED", "CACHED",
              "FREE", "STEPS");
  for (const v1::WorkerStatus& worker : status->workers()) PrintWorker(worker, status->generation(), width);
  std::printf(
      "\nUSED, CACHED and FREE count blocks of the worker's pool. A cached block is freed when another request needs "
      "it.\n");
  return kExitOk;
}

}  // namespace

void AddStatusCommand(CommandList* list) {
  list->Add("status", "Show workers, blocks and requests.", RunStatus);
}

}  // namespace quire
