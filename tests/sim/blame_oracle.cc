#include "tests/sim/blame_oracle.h"

#include <algorithm>

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

absl::Status BlameOracle::OnPlan(Slices slices) {
  in_flight_.push_back(std::move(slices));
  const bool has_suspects =
      std::any_of(live_.begin(), live_.end(), [](const auto& entry) { return IsSuspect(entry.second); });
  if (!has_suspects) return absl::OkStatus();
  std::set<RequestId> together;
  for (const Slices& plan : in_flight_) {
    for (const auto& [request, end] : plan) together.insert(request);
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

void BlameOracle::OnCommitted() {
  for (const auto& [request, end] : in_flight_.front()) {
    const auto it = live_.find(request);
    if (it == live_.end()) continue;
    Record& record = it->second;
    if (end <= record.reached) continue;
    record.reached = end;
    if (std::all_of(record.losses.begin(), record.losses.end(), [&](const Loss& loss) { return loss.end <= end; })) {
      record.losses.clear();
    }
  }
  in_flight_.pop_front();
}

std::set<RequestId> BlameOracle::OnSessionEnded(bool is_blameless, std::optional<RequestId> named) {
  std::map<RequestId, int> ends;
  for (const Slices& plan : in_flight_) {
    for (const auto& [request, end] : plan) ends[request] = std::max(ends[request], end);
  }
  in_flight_.clear();
  std::set<RequestId> must_fail;
  if (is_blameless) return must_fail;
  const bool is_by_name = named.has_value() && ends.contains(*named);
  for (const auto& [request, end] : ends) {
    const auto it = live_.find(request);
    if (it == live_.end() || (is_by_name && request != *named)) continue;
    Record& record = it->second;
    record.losses.push_back({end, end > record.reached, ends.size() == 1 && IsSuspect(record), is_by_name});
    if (MustFail(record)) must_fail.insert(request);
  }
  return must_fail;
}

}  // namespace quire
