// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_PLAN_DRAFT_H_
#define QUIRE_SCHEDULER_PLAN_DRAFT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "scheduler/sequence_group.h"
#include "scheduler/step_plan.h"

namespace quire {

// A plan in the making: which sequences get how many tokens, and what is left of the token budget.
struct PlanDraft {
  struct Slice {
    SequenceGroup* group;
    Sequence* sequence;
    int num_tokens;
  };

  explicit PlanDraft(StepId step) { plan.step = step; }

  // The sequence computes its next `num_tokens` tokens in this plan. REQUIRES: their slots are writable.
  void AddSlice(SequenceGroup* group, Sequence* sequence, int num_tokens) {
    slices.push_back({group, sequence, num_tokens});
    budget -= num_tokens;
    recompute_budget -= sequence->NumRecomputed(num_tokens);
  }

  // Returns what is left of the budget for this sequence.
  int BudgetOf(const Sequence& sequence) const {
    return IsRecomputed(sequence) ? std::min(budget, std::max(recompute_budget, 0)) : budget;
  }

  static bool IsRecomputed(const Sequence& sequence) { return sequence.NumRecomputed(1) > 0; }

  // The group is preempted: its slices leave the plan, and their tokens return to the budget.
  void RemoveSlicesOf(const SequenceGroup* group);

  StepPlan plan;  // Everything but its slices, which are made from `slices` at the end.
  std::vector<Slice> slices;
  int budget = 0;            // Tokens that the plan may still compute.
  int recompute_budget = 0;  // How many of them an earlier plan may have computed already.
  bool has_preempted = false;
};

// Returns how many tokens the next slice of `sequence` computes when the plan has `budget` tokens left for it. A
// sequence that needs more than the budget gets half of it, so that the sequences behind it get something too.
int NumSliceTokens(const Sequence& sequence, int budget, int max_chunk_tokens);

// Returns how many tokens a slice of `num_tokens` can grow by, when `budget` tokens are left at the end of the
// planning.
int NumTokensToGrow(const PlanDraft::Slice& slice, int budget, int max_chunk_tokens);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_PLAN_DRAFT_H_
