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
//
// A block may change hands as soon as it is free, even within one plan: plans run strictly in order, so its old reader
// is done. Only the two ends of a copy wait for the worker: they stay referenced until the step is committed.
class BlockManager {
 public:
  virtual ~BlockManager() = default;

  virtual int block_size() const = 0;  // Tokens per block.
  virtual int num_blocks() const = 0;  // Blocks of the pool, free and used.
  virtual int num_free_blocks() const = 0;

  // From here on copies belong to `step`. A step that is begun again was never sent: its copies are void.
  virtual void BeginStep(StepId step) = 0;

  // Makes room for the first `num_tokens` tokens of the sequence and makes the slots from `first_written` up writable:
  // a block in that range which has other owners is replaced by a fresh one, and where it holds tokens before
  // `first_written` the copy is appended to `copies`. An unknown sequence starts with an empty table. Returns false,
  // and has changed nothing, when blocks run out.
  virtual bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) = 0;

  // Blocks that Allocate with the same arguments would take from the free ones.
  virtual int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const = 0;

  // `child`, which must be new, shares every block of `parent`. REQUIRES: no copy of this step fills one of them; fork
  // before allocating.
  virtual void Fork(SequenceId parent, SequenceId child) = 0;

  // Drops the table. A sequence without one is left alone.
  virtual void Free(SequenceId sequence) = 0;

  // Valid until the next non-const call. Empty for an unknown sequence.
  virtual absl::Span<const BlockId> Table(SequenceId sequence) const = 0;

  // Called once per committed step, in order: blocks that were only kept alive for the copies of `step` may be reused.
  virtual void OnStepCommitted(StepId step) = 0;

  // The worker is lost: no step in flight will be committed, and the next session counts from step 1 again.
  virtual void OnStepsAbandoned() = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BLOCK_MANAGER_H_
