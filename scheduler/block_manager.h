#ifndef QUIRE_SCHEDULER_BLOCK_MANAGER_H_
#define QUIRE_SCHEDULER_BLOCK_MANAGER_H_

#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// What continuous batching needs to know about the KV memory of one worker: how sequences hold blocks, not where the
// blocks live. Owned by the step-loop thread. Every allocation is all-or-nothing and none ever fails loudly:
// exhaustion is normal life.
class BlockManager {
 public:
  virtual ~BlockManager() = default;

  virtual int block_size() const = 0;  // Tokens per block.
  virtual int num_blocks() const = 0;  // Blocks of the pool, free and used.
  virtual int num_free_blocks() const = 0;

  // Makes room for the first `num_tokens` tokens of the sequence and makes the slots from `first_written` up writable:
  // a block in that range which has other owners is replaced by a fresh one, and the copy is appended to `copies`.
  // An unknown sequence starts with an empty table. Returns false, and has changed nothing, when blocks run out.
  virtual bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) = 0;

  // Blocks that Allocate with the same arguments would take from the free ones.
  virtual int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const = 0;

  // `child`, which must be new, shares every block of `parent`.
  virtual void Fork(SequenceId parent, SequenceId child) = 0;

  // Drops the table. A sequence without one is left alone.
  virtual void Free(SequenceId sequence) = 0;

  // Valid until the next non-const call.
  virtual absl::Span<const BlockId> Table(SequenceId sequence) const = 0;

  // Called once per committed step: blocks that were only kept alive for the copies of `step` may be reused.
  virtual void OnStepCommitted(StepId step) = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BLOCK_MANAGER_H_
