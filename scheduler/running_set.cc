// SPDX-License-Identifier: Apache-2.0

#include "scheduler/running_set.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"

namespace quire {
namespace {

// Returns where a group of this rank is in `groups`, or would be inserted.
template <typename Groups>
auto PlaceOf(const ServiceRank& rank, Groups& groups) {
  return std::partition_point(groups.begin(), groups.end(),
                              [&](const SequenceGroup* group) { return group->rank() < rank; });
}

}  // namespace

void RunningSet::Add(SequenceGroup* group) {
  groups_.insert(PlaceOf(group->rank(), groups_), group);
  group->set_state(SequenceGroup::State::kRunning);
}

void RunningSet::Remove(SequenceGroup* group) {
  const auto place = PlaceOf(group->rank(), groups_);
  QUIRE_CHECK(place != groups_.end() && *place == group) << group->id() << " does not run";
  groups_.erase(place);
  FreeAllRows(group);
}

void RunningSet::Suspend(SequenceGroup* group, SequenceGroup::State state) {
  FreeAllRows(group);
  group->set_state(state);
}

void RunningSet::EraseSuspended() {
  std::erase_if(groups_, [](const SequenceGroup* group) { return !group->is_running(); });
}

SequenceGroup* RunningSet::CheapestVictim(absl::FunctionRef<bool(const SequenceGroup&)> is_over_share) const {
  // Larger is cheaper.
  const auto cheapness = [&](const SequenceGroup& group) {
    return std::tuple(is_over_share(group), group.rank().priority, -group.NumTokensLost(), group.rank().submission);
  };
  SequenceGroup* victim = nullptr;
  int num_running = 0;
  for (SequenceGroup* group : groups_) {
    if (!group->is_running()) continue;
    ++num_running;
    if (victim == nullptr || cheapness(*group) > cheapness(*victim)) victim = group;
  }
  return num_running >= 2 ? victim : nullptr;
}

void RunningSet::FreeRowOf(const Sequence& sequence) {
  owners_[Value(sequence.row())] = {};
  free_rows_.Return(sequence.row());
}

void RunningSet::MakeRowSpare(const Sequence& sequence, SequenceGroup* group) {
  owners_[Value(sequence.row())] = {};
  group->AddSpareRow(sequence.row());
}

void RunningSet::FreeAllRows(SequenceGroup* group) {
  for (const auto& sequence : group->sequences()) FreeRowOf(*sequence);
  for (const RowId row : group->TakeSpareRows()) free_rows_.Return(row);
}

}  // namespace quire
