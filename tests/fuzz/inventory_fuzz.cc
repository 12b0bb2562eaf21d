#include "base/check.h"
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
    QUIRE_CHECK(Value(row.row) < 4u && row.tokens.size() <= 32u &&
                row.num_computed <= static_cast<int>(row.tokens.size()));
    for (const TokenId token : row.tokens) QUIRE_CHECK(token >= 0 && token < 100) << token;
    for (const BlockId block : row.blocks) QUIRE_CHECK(Value(block) < 8u) << Value(block);
  }
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::fuzz::Inventory, quire::Read);
