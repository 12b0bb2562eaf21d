// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/rebalancer.h"

#include <algorithm>

#include "base/clock.h"

namespace quire {

void Rebalancer::OnRound(const SchedulerCounts& counts, int64_t now_us) {
  if (counts.waiting == 0 || counts.suspects > 0) {
    full_since_us_.reset();
  } else if (!full_since_us_.has_value()) {
    full_since_us_ = now_us;
  }
}

int64_t Rebalancer::due_us() const {
  return full_since_us_.has_value() ? std::max(*full_since_us_ + kFullUs, next_us_) : kNever;
}

std::vector<RequestId> Rebalancer::TakeCandidates(const Scheduler& scheduler, const LiveRequests& live,
                                                  int64_t now_us) {
  next_us_ = now_us + kIntervalUs;
  std::vector<RequestId> candidates = scheduler.FirstWaiting(kMaxMoves, [&](const SequenceGroup& group) {
    if (passed_.has_value() && group.rank() <= *passed_) return false;
    const std::optional<int64_t> moved_us = live.MovedAt(group.id());
    return !moved_us.has_value() || now_us >= *moved_us + kStayUs;
  });
  last_.reset();
  if (candidates.size() == kMaxMoves) last_ = scheduler.FindGroup(candidates.back())->rank();
  return candidates;
}

void Rebalancer::OnMoved(int num_moved) {
  passed_ = num_moved == 0 ? last_ : std::nullopt;
}

}  // namespace quire
