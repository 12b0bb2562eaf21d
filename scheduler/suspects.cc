// SPDX-License-Identifier: Apache-2.0

#include "scheduler/suspects.h"

#include <algorithm>

namespace quire {
namespace {

// What the loss of a worker says about one request.
struct Charge {
  bool is_at_front = false;
  std::map<SequenceId, int> ends;  // The slices in flight of each sequence end there.
};

bool IsInnocent(const SequenceGroup& group) {
  return group.suspicion().has_got_farther() &&
         std::none_of(group.sequences().begin(), group.sequences().end(),
                      [](const auto& sequence) { return sequence->is_behind_loss(); });
}

// Returns the only sample that was charged. Nothing while one sequence computes for all samples.
std::optional<int> SampleOf(const SequenceGroup& group, const Charge& charge) {
  if (group.request().num_samples == 1 || charge.ends.size() != 1 || group.num_to_fork() > 0) return std::nullopt;
  const bool is_shared = std::any_of(group.sequences().begin(), group.sequences().end(),
                                     [](const auto& sequence) { return sequence->wait.has_value(); });
  if (is_shared) return std::nullopt;
  const Sequence* const sequence = group.Find(charge.ends.begin()->first);
  return sequence == nullptr ? std::nullopt : std::optional(sequence->sample_index());
}

}  // namespace

void Suspects::Add(SequenceGroup* group) {
  if (group->suspicion().num_losses() == 0) return;
  accused_.emplace(group->rank().submission, group);
  num_suspects_ += group->suspicion().is_suspect();
}

void Suspects::Remove(const SequenceGroup& group) {
  if (accused_.erase(group.rank().submission) > 0) num_suspects_ -= group.suspicion().is_suspect();
}

void Suspects::OnCommitted() {
  for (auto it = accused_.begin(); it != accused_.end();) {
    SequenceGroup* const group = it->second;
    ++it;
    if (!IsInnocent(*group)) continue;
    Remove(*group);
    group->suspicion().Clear();
  }
}

std::vector<Convict> Suspects::OnLost(const PlansInFlight& plans, std::optional<SequenceId> named,
                                      absl::FunctionRef<SequenceGroup*(RequestId)> find) {
  std::vector<SliceInFlight> slices;
  for (const PlanInFlight& plan : plans.plans()) slices.insert(slices.end(), plan.slices.begin(), plan.slices.end());
  const auto is_of_named = [&](const SliceInFlight& slice) { return slice.sequence == named; };
  const bool is_named = std::any_of(slices.begin(), slices.end(), is_of_named);
  std::map<RequestId, Charge> charges;
  for (const SliceInFlight& slice : slices) {
    if (is_named && !is_of_named(slice)) continue;
    Charge& charge = charges[slice.request];
    charge.is_at_front |= slice.is_at_front;
    int& end = charge.ends[slice.sequence];
    end = std::max(end, slice.first_position + slice.num_tokens);
  }
  std::vector<Convict> convicts;
  for (const auto& [request, charge] : charges) {
    SequenceGroup* const group = find(request);
    if (group == nullptr) continue;
    for (const auto& [id, end] : charge.ends) {
      if (Sequence* const sequence = group->Find(id); sequence != nullptr) sequence->OnLost(end);
    }
    Remove(*group);
    Suspicion& suspicion = group->suspicion();
    suspicion.OnLost(charge.is_at_front, is_named);
    Add(group);
    if (suspicion.is_convicted()) convicts.push_back({request, suspicion.num_losses(), SampleOf(*group, charge)});
  }
  return convicts;
}

SequenceGroup* Suspects::newest() const {
  return std::find_if(accused_.rbegin(), accused_.rend(),
                      [](const auto& entry) { return entry.second->suspicion().is_suspect(); })
      ->second;
}

}  // namespace quire
