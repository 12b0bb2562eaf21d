// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_REBALANCE_ORACLE_H_
#define QUIRE_TESTS_SIM_REBALANCE_ORACLE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/sequence_group.h"

namespace quire {

// The oracle for the waiting requests that a full worker gives to idle ones, written from the contract of Rebalancer,
// without its code: which requests may move and when, and which must not stay.
class RebalanceOracle {
 public:
  // Without `is_on`, none may move.
  explicit RebalanceOracle(bool is_on) : is_on_(is_on) {}

  bool is_on() const { return is_on_; }
  // Whether a request that came from another worker at this time, if it did, may go to the next one.
  static bool MayLeave(std::optional<int64_t> came_us, int64_t now_us);

  // The request moves to an idle worker.
  absl::Status OnMove(const SequenceGroup& group, std::optional<int64_t> came_us, int64_t now_us);

  // A round of the loop is over. `is_full`: the worker serves, requests wait, and none of them is a suspect.
  void EndRound(bool is_full, int64_t now_us);

  // `could` are the requests that could have moved before this round, and `waiting` still wait after it. The error
  // names a request that stays although it could move for long enough, while `num_waiting` requests wait.
  absl::Status CheckStaying(const std::set<RequestId>& could, const std::set<RequestId>& waiting, int64_t now_us);

 private:
  struct Stay {
    int64_t since_us = 0;
    int64_t last_look_us = 0;
    int num_looks = 0;  // Looks of the loop for idle workers meanwhile, at least, except for one.
  };

  const bool is_on_;
  int64_t not_full_us_ = 0;          // The last round after which the worker was not full.
  std::deque<int64_t> moves_us_;     // Within the last interval.
  std::map<RequestId, Stay> stays_;  // The requests that could have moved in each of the last rounds.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_REBALANCE_ORACLE_H_
