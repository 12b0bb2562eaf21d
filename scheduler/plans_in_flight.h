// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_PLANS_IN_FLIGHT_H_
#define QUIRE_SCHEDULER_PLANS_IN_FLIGHT_H_

#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// A slice that was sent to the worker and is not answered.
struct SliceInFlight {
  RequestId request;
  SequenceId sequence;
  RowId row;
  int first_position;
  int num_tokens;
  bool is_at_front;         // Ends farther than any answered slice of the sequence.
  bool sample;              // The worker reports a token, or candidates for it.
  bool has_candidates;      // The slice samples for a beam: the worker reports candidates and draws no token.
  int num_prompt_logprobs;  // Number of prompt logprobs in the result.
  bool has_embedding;       // The slice samples for a request with a pooling.
  bool is_early = false;    // Needs a token whose draw was postponed after the slice was sent.
};

struct PlanInFlight {
  StepId step;
  std::vector<SliceInFlight> slices;  // In the order of StepPlan::slices.
};

// A sequence that ended before all its slices were answered. The cache may hold what these slices store.
struct EndedSequence {
  std::string salt;
  std::vector<TokenId> tokens;
  int num_slices_in_flight;
};

// The plans that were sent and not answered yet, and the check that a result answers the oldest of them. Owned by the
// step-loop thread.
class PlansInFlight {
 public:
  // Adds the newest plan, without slices. The reference is valid until the next non-const call.
  PlanInFlight& Add(StepId step) { return plans_.emplace_back(PlanInFlight{step, {}}); }

  // Returns whether `result` answers the oldest plan slice by slice. The error names what the worker did wrong.
  absl::Status CheckResult(const StepResult& result) const;

  // Removes the oldest plan. REQUIRES: size() > 0.
  PlanInFlight TakeOldest();
  // The worker has put off a draw of the sequence, so its slices in flight come too early.
  void OnPostponed(SequenceId sequence);

  void Clear() { plans_.clear(); }
  const std::deque<PlanInFlight>& plans() const { return plans_; }  // Oldest first.
  int size() const { return static_cast<int>(plans_.size()); }

 private:
  std::deque<PlanInFlight> plans_;  // Oldest first.
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_PLANS_IN_FLIGHT_H_
