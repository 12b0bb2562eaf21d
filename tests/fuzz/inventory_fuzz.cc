#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/inventory_check.h"
#include "kv_manager/engine/revival.h"
#include "kv_manager/worker_link/inventory_reader.h"
#include "quire/fuzz/fuzz.pb.h"
#include "tests/fuzz/message_input.h"

namespace quire {
namespace {

WorkerDescription Worker() {
  WorkerDescription worker;
  worker.vocab_size = 100;
  worker.max_context_tokens = 32;
  worker.block_size = 2;
  worker.num_blocks = 8;
  worker.num_host_blocks = 4;
  worker.max_sequences = 4;
  worker.max_tokens_per_step = 16;
  worker.numerics_fingerprint = "f";
  return worker;
}

// What the manager makes of an inventory is consistent: requests, tables and the prefix cache.
void Adopt(const WorkerInventory& inventory, const WorkerDescription& worker) {
  const InventoryCheck check(inventory, worker.num_blocks, worker.block_size);
  std::vector<const WorkerInventory::Row*> others;
  const std::vector<RowsOfRequest> requests = FindRequests(inventory, &others);
  size_t num_rows = others.size();
  RestoredBlocks blocks;
  absl::flat_hash_set<BlockId> next_blocks;
  std::vector<Revival> revivals;
  for (const RowsOfRequest& rows : requests) {
    num_rows += rows.rows.size();
    Request request;
    request.prompt.assign(rows.first->tokens.begin(), rows.first->tokens.begin() + rows.first->prompt_length);
    request.max_tokens = worker.max_context_tokens;
    request.num_samples = std::max<int>(1, static_cast<int>(rows.rows.size()));
    if (request.prompt.empty()) continue;
    request.sampling.num_logprobs = rows.first->num_logprobs;
    request.sampling.num_prompt_logprobs = rows.first->num_prompt_logprobs;
    if (!rows.search.empty()) {
      request.beam = BeamParams{.width = request.num_samples, .num_return = 1};
      request.num_samples = 1;
    }
    Revival revival = Revive(std::move(request), worker.vocab_size, rows, check);
    if (revival.is_over) continue;
    for (const RestoredRequest::Sample& sample : revival.request.samples) {
      QUIRE_CHECK(sample.num_stored >= 0 && sample.num_stored < static_cast<int>(sample.tokens.size()));
    }
    next_blocks.insert(revival.next_blocks.begin(), revival.next_blocks.end());
    revivals.push_back(std::move(revival));
  }
  QUIRE_CHECK_EQ(num_rows, inventory.rows.size());
  for (const Revival& revival : revivals) {
    blocks.tables.insert(blocks.tables.end(), revival.tables.begin(), revival.tables.end());
  }
  blocks.cached = check.CachedBlocks(blocks.tables, std::move(next_blocks));
  PagedBlockManager manager({.num_blocks = worker.num_blocks, .block_size = worker.block_size});
  manager.Restore(blocks);
  const absl::Status status = manager.CheckIntegrity();
  QUIRE_CHECK(status.ok()) << status;
}

// An inventory is refused, or its rows and labels have ids in their ranges.
void Read(const fuzz::Inventory& chunks) {
  static const WorkerDescription worker = Worker();
  InventoryReader reader(worker);
  for (const v1::InventoryChunk& chunk : chunks.chunks()) {
    const absl::Status status = reader.Add(chunk);
    if (status.ok()) continue;
    QUIRE_CHECK(!status.message().empty());
    return;
  }
  if (!reader.is_complete()) return;
  const WorkerInventory inventory = reader.Take();
  QUIRE_CHECK(inventory.rows.size() <= 4u);
  for (const WorkerInventory::Row& row : inventory.rows) {
    // A row may have drawn one token beyond the context.
    QUIRE_CHECK(Value(row.row) < 4u && row.tokens.size() <= 33u &&
                row.num_computed <= static_cast<int>(row.tokens.size()));
    for (const TokenId token : row.tokens) QUIRE_CHECK(token >= 0 && token < 100) << token;
    for (const BlockId block : row.blocks) QUIRE_CHECK(Value(block) < 8u) << Value(block);
  }
  Adopt(inventory, worker);
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::fuzz::Inventory, quire::Read);
