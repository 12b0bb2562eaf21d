// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/rebalance_oracle.h"

#include "absl/status/status.h"
#include "kv_manager/engine/rebalancer.h"
#include "tests/sim/violation.h"

namespace quire {

bool RebalanceOracle::MayLeave(std::optional<int64_t> came_us, int64_t now_us) {
  return !came_us.has_value() || now_us >= *came_us + Rebalancer::kStayUs;
}

absl::Status RebalanceOracle::OnMove(const SequenceGroup& group, std::optional<int64_t> came_us, int64_t now_us) {
  const uint64_t id = Value(group.id());
  if (!is_on_) return Violation("request ", id, " moves to an idle worker without --rebalance");
  if (group.is_running() || group.is_swapped() || group.has_slices_in_flight()) {
    return Violation("request ", id, " moves to an idle worker and holds something");
  }
  if (now_us < not_full_us_ + Rebalancer::kFullUs) {
    return Violation("request ", id, " moves to an idle worker from one that was not full ", now_us - not_full_us_,
                     " us ago");
  }
  if (!MayLeave(came_us, now_us)) return Violation("request ", id, " moves again after ", now_us - *came_us, " us");
  while (!moves_us_.empty() && moves_us_.front() + Rebalancer::kIntervalUs <= now_us) moves_us_.pop_front();
  moves_us_.push_back(now_us);
  stays_.clear();  // The others may have to wait until the idle worker has room again.
  if (moves_us_.size() > Rebalancer::kMaxMoves) return Violation(moves_us_.size(), " requests move in one interval");
  return absl::OkStatus();
}

void RebalanceOracle::EndRound(bool is_full, int64_t now_us) {
  if (!is_full) not_full_us_ = now_us;
}

// Between two rounds that are an interval apart, the loop has looked at least once. One look sees kMaxMoves requests,
// and those that cannot move come first in the worst case. When a request moves, the count restarts.
absl::Status RebalanceOracle::CheckStaying(const std::set<RequestId>& could, const std::set<RequestId>& waiting,
                                           int64_t now_us) {
  std::erase_if(stays_,
                [&](const auto& entry) { return !could.contains(entry.first) || !waiting.contains(entry.first); });
  const int max_looks = 3 + static_cast<int>(waiting.size()) / Rebalancer::kMaxMoves;
  for (const RequestId request : could) {
    if (!waiting.contains(request)) continue;
    Stay& stay = stays_.try_emplace(request, Stay{now_us, now_us + Rebalancer::kFullUs, 0}).first->second;
    if (now_us < stay.last_look_us + Rebalancer::kIntervalUs) continue;
    stay.last_look_us = now_us;
    if (++stay.num_looks > max_looks) {
      return Violation("request ", Value(request), " waits for ", (now_us - stay.since_us) / 1000,
                       " ms although a worker is idle");
    }
  }
  return absl::OkStatus();
}

}  // namespace quire
