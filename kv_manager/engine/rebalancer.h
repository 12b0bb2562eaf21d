// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_REBALANCER_H_
#define QUIRE_KV_MANAGER_ENGINE_REBALANCER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "kv_manager/engine/live_requests.h"
#include "scheduler/scheduler.h"

namespace quire {

// Decides when a worker that serves gives waiting requests to an idle one, and which ones. These rules keep requests
// from going to and fro:
//   - The worker has had waiting requests for kFullUs without a break, and no suspect.
//   - Only requests move whose move loses nothing: those that wait and have no blocks, on the device or on the host.
//     Requests that run stay. When blocks are short, those that were preempted move.
//   - The other worker is idle (see TargetNeeds): it has room and no waiting requests.
//   - A request that has moved, for whatever reason, stays for kStayUs.
//   - At most kMaxMoves move in kIntervalUs.
// Only kMaxMoves waiting requests are looked at in kIntervalUs, because each look compares with all workers. When none
// of them can move, the next ones are looked at. When one has moved, or all were looked at, it is the first ones again.
// So requests that no idle worker can hold do not keep the others from moving. Owned by the step-loop thread.
class Rebalancer {
 public:
  static constexpr int64_t kFullUs = 200'000;
  static constexpr int64_t kIntervalUs = 100'000;
  static constexpr int kMaxMoves = 32;
  static constexpr int64_t kStayUs = 10'000'000;

  // Once per round while the worker serves and keeps its requests, after the plans of the round: what still waits then
  // has found no room.
  void OnRound(const SchedulerCounts& counts, int64_t now_us);
  // The worker is lost or gives its requests away.
  void Reset() { *this = Rebalancer(); }

  // When TakeCandidates may return requests; kNever while no request waits.
  int64_t due_us() const;
  // Some requests that may move now, in the order of service. The next ones may move after kIntervalUs.
  std::vector<RequestId> TakeCandidates(const Scheduler& scheduler, const LiveRequests& live, int64_t now_us);

  // `num_moved` of the last candidates have moved.
  void OnMoved(int num_moved);

 private:
  std::optional<int64_t> full_since_us_;  // Requests have waited since then.
  int64_t next_us_ = 0;
  // Candidates begin after this rank; empty: at the first one.
  std::optional<ServiceRank> passed_;
  std::optional<ServiceRank> last_;  // The rank of the last candidate. Nothing when there is no request behind it.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REBALANCER_H_
