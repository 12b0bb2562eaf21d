// SPDX-License-Identifier: Apache-2.0

#include "scheduler/plan_draft.h"

#include <algorithm>

namespace quire {

void PlanDraft::RemoveSlicesOf(const SequenceGroup* group) {
  std::erase_if(slices, [&](const Slice& slice) {
    if (slice.group != group) return false;
    budget += slice.num_tokens;
    recompute_budget += slice.sequence->NumRecomputed(slice.num_tokens);
    return true;
  });
}

int NumSliceTokens(const Sequence& sequence, int budget, int max_chunk_tokens) {
  constexpr int kLeastCut = 16;  // Smaller chunks would cost more in attention than they are worth.
  const int wanted = std::min(sequence.num_uncomputed_tokens(), max_chunk_tokens);
  return wanted <= budget ? wanted : std::max(budget / 2, std::min(budget, kLeastCut));
}

int NumTokensToGrow(const PlanDraft::Slice& slice, int budget, int max_chunk_tokens) {
  const int wanted = std::min(slice.sequence->num_uncomputed_tokens(), max_chunk_tokens);
  return std::min(wanted - slice.num_tokens, budget);
}

}  // namespace quire
