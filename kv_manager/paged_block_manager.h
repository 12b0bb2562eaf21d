#ifndef QUIRE_KV_MANAGER_PAGED_BLOCK_MANAGER_H_
#define QUIRE_KV_MANAGER_PAGED_BLOCK_MANAGER_H_

#include <deque>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/block_pool.h"
#include "kv_manager/block_table.h"
#include "scheduler/block_manager.h"

namespace quire {

// free + used == total; shared ones are among the used.
struct BlockCounts {
  int total = 0;
  int free = 0;
  int used = 0;
  int shared = 0;
};

// Paged KV memory with copy-on-write. Tables and copies in flight hold the references; a block returns to the pool when
// the last one goes. A block with more than one owner is never written: the writer gets a copy of its partial last
// block, and the last owner left writes in place. Owned by the step-loop thread.
class PagedBlockManager : public BlockManager {
 public:
  PagedBlockManager(int num_blocks, int block_size);

  int block_size() const override { return block_size_; }
  int num_blocks() const override { return pool_.num_blocks(); }
  int num_free_blocks() const override { return pool_.num_free(); }

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const override;
  void Fork(SequenceId parent, SequenceId child) override;
  void Free(SequenceId sequence) override;
  absl::Span<const BlockId> Table(SequenceId sequence) const override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;

  BlockCounts counts() const;

  // Recomputes every reference count from the tables and the copies in flight. O(blocks); the error names the first
  // block that contradicts.
  absl::Status CheckIntegrity() const;

 private:
  struct CopyInFlight {
    StepId step;
    BlockRef source;
    BlockRef destination;
  };

  // References by tables: what a copy in flight holds keeps a block alive but does not forbid writing, because the
  // copies of a step come before its stores.
  int NumOwners(BlockId block) const { return pool_.ref_count(block) - num_copies_[Value(block)]; }
  bool IsShared(BlockId block) const { return NumOwners(block) > 1; }
  bool IsFilledByThisStep(BlockId block) const;

  // Gives entry `index` of the table a block of its own.
  void CopyOnWrite(BlockTable* table, int index, bool keeps_tokens, std::vector<BlockCopy>* copies);
  void CountCopy(const CopyInFlight& copy, int change);

  const int block_size_;
  BlockPool pool_;  // Before everything that holds references.
  absl::flat_hash_map<SequenceId, BlockTable> tables_;
  std::deque<CopyInFlight> copies_;  // By step.
  std::vector<int> num_copies_;      // By block id: how often it is an end of a copy in flight.
  StepId step_{0};                   // Begun last.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PAGED_BLOCK_MANAGER_H_
