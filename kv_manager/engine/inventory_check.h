// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_INVENTORY_CHECK_H_
#define QUIRE_KV_MANAGER_ENGINE_INVENTORY_CHECK_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/worker_link/row_record.h"
#include "kv_manager/worker_link/worker_inventory.h"

namespace quire {

// Says what of an inventory is true. The labels are what the worker has written into its blocks. A row's table is
// checked against them: the K and V of a token are stored if the block where the table puts it has a label with this
// token, under the root of the row, behind labels with all tokens before it. So it does not matter whether the block
// was given to another sequence, or is shared. What does not agree is not stored, and is computed again. Borrows the
// inventory.
class InventoryCheck {
 public:
  InventoryCheck(const WorkerInventory& inventory, int num_blocks, int block_size);

  // Returns how many of the row's first tokens have their K and V in the blocks of the row's table.
  int NumStored(const WorkerInventory::Row& row) const;

  // The salt of the row's root. Nothing when the root is private, and when the row has none.
  std::optional<std::string> SaltOf(const WorkerInventory::Row& row) const;

  int block_size() const { return block_size_; }

  // The full blocks of the pool with labels that belong into the prefix cache, parents before children. No two have the
  // same content: the worker may have a content twice, and one block is enough. The blocks that restored sequences are
  // going to write are not among them, and neither is what comes behind them. These blocks are `next_blocks`, and the
  // last block of each table if the table does not fill it: the block may have a full label from an earlier sequence
  // with the same first tokens. A block that fills a place of a table is not left out. The salts are borrowed from
  // here.
  std::vector<RestoredBlocks::CachedBlock> CachedBlocks(absl::Span<const RestoredBlocks::Table> tables,
                                                        absl::flat_hash_set<BlockId> next_blocks) const;

 private:
  static constexpr int kNone = -1;

  bool IsLabelOf(const WorkerInventory::Label& label, int parent, const WorkerInventory::Row& row, int first_token,
                 int num_tokens) const;

  const WorkerInventory& inventory_;
  const int block_size_;
  // Labels with equal contents have equal numbers: that of the first label with this content. A content is the tokens
  // of a label with all tokens before it, and the root. [num_labels]
  std::vector<int> contents_;
  std::vector<int> labels_;                        // The label of each block of the pool, or kNone. [num_blocks]
  std::vector<std::optional<std::string>> salts_;  // Each root has an entry. [num_roots]
};

// The rows of one request that a manager before this one has started, found by their record.
struct RowsOfRequest {
  RowRecord record;                             // Borrowed from the first row. Its number of moves is the greatest.
  const WorkerInventory::Row* first = nullptr;  // Has the prompt that all rows have.
  // The state of its beam search, from the row that got farthest (see RowRecord). It is empty when the
  // request is no search, or the search has not made a step. Borrowed from the row.
  absl::string_view search = {};
  // One for each sample that has a row, by rising sample index. With `search`, one for each sequence. It is empty when
  // other requests have rows with the same sequence ids, so that none of these counts.
  std::vector<const WorkerInventory::Row*> rows;
};

// Finds out which rows belong together. Of two rows of one sample or of one beam, one is left from before the request
// was preempted, and the row with more tokens counts. Rows without a record, rows whose prompt differs from that of the
// first row with their record, and rows that do not count are appended to `others`. Borrows the inventory.
std::vector<RowsOfRequest> FindRequests(const WorkerInventory& inventory,
                                        std::vector<const WorkerInventory::Row*>* others);

// The greatest id of all sequences in the rows, ended ones included: as long as a row has this id, no other sequence
// of the worker may get it. Ids that FindRequests does not accept do not count.
SequenceId LastSequence(const WorkerInventory& inventory);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_INVENTORY_CHECK_H_
