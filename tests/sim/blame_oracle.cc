// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/blame_oracle.h"

#include <algorithm>
#include <utility>

#include "tests/sim/violation.h"

namespace quire {

bool BlameOracle::IsSuspect(const Record& record) {
  int num_at_front = 0;
  bool is_named = false;
  for (const Loss& loss : record.losses) {
    num_at_front += loss.is_at_front;
    is_named |= loss.is_named;
  }
  return is_named || num_at_front >= 2 || record.losses.size() >= 8;
}

bool BlameOracle::MustFail(const Record& record) {
  int num_trials = 0;
  bool is_named = false;
  for (size_t i = 0; i < record.losses.size(); ++i) {
    const Loss& loss = record.losses[i];
    num_trials += loss.is_trial && (loss.is_at_front || i + 1 >= 16);
    is_named |= loss.is_named;
  }
  return num_trials >= (is_named ? 1 : 2) || (num_trials == 1 && record.losses.size() >= 16);
}

BlameOracle::Progress* BlameOracle::Find(const Slice& slice, Record* record) {
  std::map<Member, Progress>& members = record->members;
  const bool has_advanced = !members.empty() && members.begin()->first.num_tokens < slice.member.num_tokens;
  if (has_advanced) {
    // The search has got the candidates of all beams: each has been computed up to the token that was added then.
    members.clear();
    record->num_searched = slice.member.num_tokens - 1;
  }
  return &members.try_emplace(slice.member, Progress{.reached = record->num_searched}).first->second;
}

absl::Status BlameOracle::OnPlan(Slices slices) {
  for (Slice& slice : slices) {
    const auto it = live_.find(slice.request);
    if (it == live_.end()) continue;
    Progress* const progress = Find(slice, &it->second);
    if (slice.is_fork) *progress = it->second.members.at(Member{0, 0});
    slice.is_at_front = slice.end > progress->reached;
  }
  const bool computes = !slices.empty();
  in_flight_.push_back(std::move(slices));
  if (!computes) return absl::OkStatus();  // Such a plan only ends rows, for example.
  const bool has_suspects =
      std::any_of(live_.begin(), live_.end(), [](const auto& entry) { return IsSuspect(entry.second); });
  if (!has_suspects) return absl::OkStatus();
  std::set<RequestId> together;
  for (const Slices& plan : in_flight_) {
    for (const Slice& slice : plan) together.insert(slice.request);
  }
  if (together.size() > 1) return Violation("blame: ", together.size(), " requests are computed during a trial");
  for (const RequestId request : together) {
    const auto record = live_.find(request);
    if (record != live_.end() && !IsSuspect(record->second)) {
      return Violation("blame: request ", Value(request), " runs, and suspects wait");
    }
  }
  return absl::OkStatus();
}

void BlameOracle::OnCommitted(const std::vector<SequenceId>& early, IsLive is_live) {
  for (const Slice& slice : in_flight_.front()) {
    const bool is_early = std::find(early.begin(), early.end(), slice.sequence) != early.end();
    const int end = slice.end - (is_early ? 1 : 0);
    const auto it = live_.find(slice.request);
    if (it == live_.end()) continue;
    if (slice.member.num_tokens == 0 && !is_live(slice.request, slice.member.index)) continue;
    Progress* const progress = Find(slice, &it->second);
    if (end >= progress->lost_at) progress->lost_at = 0;
    if (end <= progress->reached) continue;
    progress->reached = end;
    it->second.has_got_farther = true;
  }
  in_flight_.pop_front();
  is_settled_ = false;
}

void BlameOracle::Settle(IsLive is_live) {
  if (std::exchange(is_settled_, true)) return;
  for (auto& [request, record] : live_) {
    bool is_behind = false;
    for (const auto& [member, progress] : record.members) {
      is_behind |= progress.lost_at > 0 && (member.num_tokens > 0 || is_live(request, member.index));
    }
    if (record.has_got_farther && !is_behind) record.losses.clear();
  }
}

std::set<RequestId> BlameOracle::OnSessionEnded(bool is_blameless, std::optional<SequenceId> named,
                                                absl::FunctionRef<bool(RequestId)> has_drawn) {
  std::map<RequestId, Slices> lost;
  for (const Slices& plan : in_flight_) {
    for (const Slice& slice : plan) lost[slice.request].push_back(slice);
  }
  in_flight_.clear();
  std::set<RequestId> must_fail;
  if (!is_blameless) must_fail = Blame(lost, named);
  // The samples of a request without tokens are one sequence again, and are forked once more later.
  for (auto& [request, record] : live_) {
    if (has_drawn(request)) continue;
    std::erase_if(record.members,
                  [](const auto& entry) { return entry.first.num_tokens == 0 && entry.first.index > 0; });
  }
  return must_fail;
}

std::set<RequestId> BlameOracle::Blame(const std::map<RequestId, Slices>& lost, std::optional<SequenceId> named) {
  bool is_by_name = false;
  for (const auto& [request, slices] : lost) {
    for (const Slice& slice : slices) is_by_name |= slice.sequence == named;
  }
  std::set<RequestId> must_fail;
  for (const auto& [request, slices] : lost) {
    const auto it = live_.find(request);
    if (it == live_.end()) continue;
    Record& record = it->second;
    bool is_blamed = false;
    bool is_at_front = false;
    for (const Slice& slice : slices) {
      if (is_by_name && slice.sequence != named) continue;
      is_blamed = true;
      is_at_front |= slice.is_at_front;
      int& lost_at = Find(slice, &record)->lost_at;
      lost_at = std::max(lost_at, slice.end);
    }
    if (!is_blamed) continue;
    record.has_got_farther = false;
    record.losses.push_back({is_at_front, lost.size() == 1 && IsSuspect(record), is_by_name});
    if (MustFail(record)) must_fail.insert(request);
  }
  return must_fail;
}

}  // namespace quire
