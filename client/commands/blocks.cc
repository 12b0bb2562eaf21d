// SPDX-License-Identifier: Apache-2.0

#include <cstdio>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "client/commands/commands.h"
#include "client/commands/option_range.h"
#include "client/commands/shared_options.h"
#include "client/terminal/terminal.h"
#include "client/views/block_drawing.h"
#include "client/views/state_text.h"

namespace quire {
namespace {

struct BlocksOptions {
  std::string worker;
  std::optional<uint32_t> block;
  bool draws_map = false;
};

// Returns the first message about each worker in `wanted`, by the worker's address.
absl::StatusOr<std::map<std::string, v1::WatchBlocksResponse>> TakeSnapshots(Client& client, const std::string& worker,
                                                                             std::set<std::string> wanted,
                                                                             absl::Duration timeout) {
  std::map<std::string, v1::WatchBlocksResponse> snapshots;
  if (wanted.empty()) return snapshots;
  v1::WatchBlocksRequest request;
  request.set_worker(worker);
  const auto stream = client.WatchBlocks(request, timeout);
  v1::WatchBlocksResponse message;
  while (!wanted.empty()) {
    if (!stream->Next(&message)) {
      const absl::Status status = stream->Finish();
      return status.ok() ? absl::DataLossError("the manager has ended the watch") : status;
    }
    wanted.erase(message.worker());
    snapshots.emplace(message.worker(), message);
  }
  return snapshots;
}

void PrintCounts(const std::map<std::string, v1::WatchBlocksResponse>& snapshots, int address_width) {
  std::printf("%-*s %10s %9s %9s %9s %9s %9s %9s\n", address_width, "WORKER", "STEP", "BLOCKS", "FREE", "CACHED",
              "USED", "SHARED", "PINNED");
  for (const auto& [address, message] : snapshots) {
    const std::vector<uint64_t> counts = CountStates(message.snapshot().states());
    std::printf("%-*s %10llu %9zu %9llu %9llu %9llu %9llu %9llu\n", address_width, address.c_str(), Big(message.step()),
                message.snapshot().states().size(), Big(counts[v1::BLOCK_STATE_FREE]),
                Big(counts[v1::BLOCK_STATE_EVICTABLE]), Big(counts[v1::BLOCK_STATE_USED]),
                Big(counts[v1::BLOCK_STATE_SHARED]), Big(counts[v1::BLOCK_STATE_PINNED]));
  }
  std::printf("\nA block counts once: as pinned, else as shared by several, else as used by one, else as cached.\n");
}

void PrintMaps(const std::map<std::string, v1::WatchBlocksResponse>& snapshots) {
  const Terminal terminal = DescribeTerminal();
  for (const auto& [address, message] : snapshots) {
    const std::string& states = message.snapshot().states();
    const DrawnMap map = DrawMap(states, terminal, static_cast<int>(snapshots.size()));
    std::printf("worker %s, step %llu: %zu blocks of %u tokens, %d for each character\n%s", address.c_str(),
                Big(message.step()), states.size(), message.snapshot().block_size(), map.blocks_per_cell,
                map.lines.c_str());
  }
  std::printf("%s\n", DrawLegend(terminal).c_str());
}

void PrintBlock(const v1::DescribeBlockResponse& block) {
  static constexpr const char* kNames[] = {"unknown", "free", "cached", "used", "shared", "pinned"};
  const bool is_known = block.state() >= 0 && block.state() < static_cast<int>(std::size(kNames));
  std::printf("block %u of worker %s, step %llu: %s, %s\n", block.block(), block.worker().c_str(), Big(block.step()),
              kNames[is_known ? block.state() : 0], Counted(block.references(), "reference").c_str());
  for (const v1::BlockOwner& owner : block.owners()) {
    const unsigned long long first = uint64_t{owner.table_index()} * block.block_size();
    std::printf("  request %s, sample %u: tokens %llu .. %llu\n", Printable(owner.request_id()).c_str(),
                owner.sample_index(), first, first + block.block_size() - 1);
  }
  if (block.num_owners() > static_cast<uint32_t>(block.owners_size())) {
    std::printf("  and %s\n", Counted(block.num_owners() - block.owners_size(), "more sequence").c_str());
  }
  if (block.num_pins() > 0) std::printf("  %s\n", Counted(block.num_pins(), "pin").c_str());
  if (block.num_copies() > 0) std::printf("  copies in flight: %u\n", block.num_copies());
  if (!block.is_cached()) return;
  std::printf("  the prefix cache: block %u of prefix %016llx, last used %s ago\n", block.prefix_depth(),
              Big(block.prefix_hash()), Counted(block.age_steps(), "step").c_str());
}

int CountOrDrawBlocks(const BlocksOptions& options, const CommandContext& context) {
  Client client(context.client);
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  if (!status.ok()) return ReportError(status.status(), context.client.endpoint);
  std::set<std::string> wanted;
  bool is_known = options.worker.empty();
  bool is_whole = !status->workers().empty();  // Becomes false when a wanted worker is not ready.
  for (const v1::WorkerStatus& worker : status->workers()) {
    if (!options.worker.empty() && worker.address() != options.worker) continue;
    is_known = true;
    if (worker.state() == v1::WORKER_STATE_READY) {
      wanted.insert(worker.address());
    } else {
      is_whole = false;
      std::fprintf(stderr, "quirectl: worker %s is not ready: %s\n", worker.address().c_str(),
                   worker.last_error().c_str());
    }
  }
  // The manager refuses an unknown address, and its error lists the workers.
  if (!is_known) wanted.insert(options.worker);
  const auto snapshots = TakeSnapshots(client, options.worker, wanted, context.client.timeout);
  if (!snapshots.ok()) return ReportError(snapshots.status(), context.client.endpoint);
  if (context.format == OutputFormat::kJson) {
    for (const auto& [address, message] : *snapshots) PrintJson(message);
  } else {
    options.draws_map ? PrintMaps(*snapshots) : PrintCounts(*snapshots, AddressWidth(*status));
  }
  return is_whole ? kExitOk : kExitUnavailable;
}

int DescribeBlock(const BlocksOptions& options, const CommandContext& context) {
  Client client(context.client);
  v1::DescribeBlockRequest request;
  request.set_worker(options.worker);
  request.set_block(*options.block);
  const absl::StatusOr<v1::DescribeBlockResponse> block = client.DescribeBlock(request);
  if (!block.ok()) {
    const int code = ReportError(block.status(), context.client.endpoint);
    if (options.worker.empty() && absl::StartsWith(block.status().message(), "worker:")) {
      std::fprintf(stderr, "  choose one with --worker ADDRESS\n");
    }
    return code;
  }
  context.format == OutputFormat::kJson ? PrintJson(*block) : PrintBlock(*block);
  return kExitOk;
}

int RunBlocks(const BlocksOptions& options, const CommandContext& context) {
  return options.block.has_value() ? DescribeBlock(options, context) : CountOrDrawBlocks(options, context);
}

}  // namespace

void AddBlocksCommand(CommandList* list) {
  const auto [command, options] =
      list->Add("blocks",
                "Count the blocks of each worker by state; --map draws them, --block describes one. A block is free, "
                "cached (only "
                "the prefix cache holds it), used, shared (by several sequences) or pinned.",
                RunBlocks);
  AddWorkerOption(command, &options->worker);
  command->add_flag("--map", options->draws_map, "Draw a character for each block or group of blocks")
      ->option_text(" ");  // CLI11 would print what the option excludes.
  command->add_option("--block", options->block, "Describe this block: its owners, references, age and prefix")
      ->check(InRange<uint32_t>())
      ->option_text("ID")
      ->excludes("--map");
}

}  // namespace quire
