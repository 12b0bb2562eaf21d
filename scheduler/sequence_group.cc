#include "scheduler/sequence_group.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace quire {

SequenceGroup::SequenceGroup(Request request, ServiceRank rank, SequenceId sequence)
    : request_(std::move(request)), rank_(rank) {
  sequences_.emplace_back(sequence, /*sample_index=*/0, request_.prompt, request_.max_tokens);
}

Sequence* SequenceGroup::Find(SequenceId sequence) {
  auto it = std::find_if(sequences_.begin(), sequences_.end(), [&](const Sequence& s) { return s.id() == sequence; });
  return it == sequences_.end() ? nullptr : &*it;
}

int SequenceGroup::NumTokensLost() const {
  int sum = 0;
  bool is_planned_to_the_end = true;
  for (const Sequence& sequence : sequences_) {
    sum += sequence.num_computed_tokens();
    if (sequence.num_uncomputed_tokens() > 0) is_planned_to_the_end = false;
  }
  return is_planned_to_the_end ? 0 : sum;
}

bool SequenceGroup::has_slices_in_flight() const {
  return std::any_of(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return s.has_slices_in_flight(); });
}

SequenceGroup* CheapestVictim(absl::Span<SequenceGroup* const> groups) {
  // Larger is cheaper.
  const auto cheapness = [](const SequenceGroup& group) {
    return std::tuple(group.rank().priority, -group.NumTokensLost(), group.rank().submission);
  };
  SequenceGroup* victim = nullptr;
  int num_running = 0;
  for (SequenceGroup* group : groups) {
    if (!group->is_running) continue;
    ++num_running;
    if (victim == nullptr || cheapness(*group) > cheapness(*victim)) victim = group;
  }
  return num_running >= 2 ? victim : nullptr;
}

}  // namespace quire
