// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_ADMISSION_CONTROL_H_
#define QUIRE_SCHEDULER_ADMISSION_CONTROL_H_

#include <cstdint>

#include "base/ids.h"
#include "scheduler/block_manager.h"
#include "scheduler/running_set.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_plan.h"
#include "scheduler/wait_reason.h"
#include "scheduler/waiting_queue.h"

namespace quire {

// The number of blocks that admission leaves free so that running sequences can grow: this share of the pool, rounded
// up.
int WatermarkBlocks(double watermark, int num_blocks);

// Returns whether a group that wants to enter may take `num_needed` blocks. The watermark keeps room for running
// sequences. An idle pool runs none, so there the group may take all free blocks.
bool HasRoom(int num_needed, int num_free, int watermark_blocks, bool is_idle);

// Decides whether a waiting group may enter the running set, and moves those that enter: they take rows, and blocks for
// their whole context. Owned by the step-loop thread.
class AdmissionControl {
 public:
  enum class Verdict {
    kMayEnter,
    kNoRoom,  // Rows or blocks are short, or results of the group are in flight. Later groups must not overtake.
    kWaitsForPrefix,  // A running sequence is about to compute the beginning of the prompt. Later groups may overtake.
  };
  struct Decision {
    Verdict verdict = Verdict::kNoRoom;
    int num_cached_tokens = 0;  // Tokens that the group takes from the prefix cache when it enters.
  };

  // All pointers are borrowed and outlive this.
  AdmissionControl(const SchedulerOptions& options, BlockManager* blocks, RunningSet* running, WaitingQueue* waiting);

  // Returns whether the batching options let any group enter now.
  bool MayAdmit() const;
  // Static batching: a batch is open until a plan adds nothing to it, and while it is open groups may join it.
  void SetBatchOpen(bool is_open) { is_batch_open_ = is_open; }

  // Returns whether the group may enter in the plan of `step`. When blocks are short, the group's shortage() remembers
  // it, so that the next plans need not look at the whole prompt again. REQUIRES: the group waits.
  Decision Decide(SequenceGroup* group, StepId step) const;

  // Moves the group from the waiting queue to the running set. It takes the blocks of the whole context at once, so
  // that no block is promised to two groups, and adds the sequence starts, copies and swaps to `plan`.
  // REQUIRES: Decide has just returned `decision`, with kMayEnter.
  void Enter(SequenceGroup* group, const Decision& decision, StepPlan* plan);

  // Returns how many tokens at the beginning of the group's prompt are cached and may be used.
  int NumCachedTokens(const SequenceGroup& group) const;

  // Returns why the group does not run, as of the plan of `step`.
  WaitReason Explain(SequenceGroup* group, StepId step);

  // Tokens that entering groups have taken from the prefix cache, ever.
  int64_t num_tokens_from_cache() const { return num_tokens_from_cache_; }
  // Groups that have entered, ever, and what they counted for in the waiting queue.
  int64_t num_entered() const { return num_entered_; }
  int64_t num_entered_tokens() const { return num_entered_tokens_; }

 private:
  int NumBlocksToEnter(const SequenceGroup& group) const;
  SequenceStart StartOf(const SequenceGroup& group, const Sequence& sequence) const;
  // Both give the group's sequences their rows and tables, and set how many of their tokens are computed.
  void SwapIn(SequenceGroup* group, StepPlan* plan);
  void StartAgain(SequenceGroup* group, int num_cached_tokens, StepPlan* plan);

  const Batching batching_;
  const bool keeps_rows_;
  const double waiting_served_ratio_;
  BlockManager* const blocks_;
  RunningSet* const running_;
  WaitingQueue* const waiting_;
  const int watermark_blocks_;
  bool is_batch_open_ = true;
  int64_t num_tokens_from_cache_ = 0;
  int64_t num_entered_ = 0;
  int64_t num_entered_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_ADMISSION_CONTROL_H_
