// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_BLOCKS_BLOCK_RECOUNT_H_
#define QUIRE_KV_MANAGER_BLOCKS_BLOCK_RECOUNT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_audit.h"
#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/block_table.h"
#include "kv_manager/blocks/copies_in_flight.h"
#include "kv_manager/blocks/prefix_pins.h"
#include "kv_manager/blocks/prefix_tree.h"
#include "kv_manager/blocks/sheet_table.h"

namespace quire {

// Counts the references to all blocks of a pool and of its host tier from scratch, by asking everybody who holds
// blocks. First add every holder once; then compare the result with the counts that the pools keep, or repair them.
class BlockRecount {
 public:
  BlockRecount(int num_blocks, int num_host_blocks);

  // The table of one sequence. Its first `num_tokens` slots are used. When `is_swapped`, its blocks are of the host
  // tier, otherwise of the pool.
  void AddTable(const BlockTable& table, int num_tokens, bool is_swapped);
  // The same for its sheets of another group than group 0.
  void AddSheets(const SheetTable& table, bool is_swapped);
  void AddCopies(const CopiesInFlight& copies);
  void AddHostReference(BlockId host_block) { ++host_references_[Value(host_block)]; }
  void AddPins(const PrefixPins& pins);
  void AddCache(const PrefixTree& tree);

  // Compares the recount with the kept counts. Fills in everything but BlockAudit::contradiction.
  BlockAudit Compare(const BlockPool& pool, const BlockPool& host_pool, const CopiesInFlight& copies) const;

  // Returns whether the tables of sequences that are not swapped have `table_entries` entries for `live_tokens` tokens,
  // and no table holds more tokens than it has slots. The error has both numbers.
  absl::Status CheckTables(int64_t table_entries, int64_t live_tokens) const;

  // Replaces the counts of the pools by the counts of the recount.
  void Repair(BlockPool* pool, BlockPool* host_pool) const;

 private:
  std::vector<int> references_;       // References to each block of the pool.
  std::vector<int> copies_;           // Those references that belong to copies in flight.
  std::vector<bool> is_cached_;       // Whether the prefix cache has one of the references.
  std::vector<int> host_references_;  // References to each block of the host tier.
  int64_t table_entries_ = 0;
  int64_t live_tokens_ = 0;
  absl::Status overfull_;  // Names the first table that holds more tokens than it has slots.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_BLOCK_RECOUNT_H_
