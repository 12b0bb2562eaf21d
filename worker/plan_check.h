// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_PLAN_CHECK_H_
#define QUIRE_WORKER_PLAN_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "quire/v1/worker.pb.h"
#include "worker/mark_set.h"
#include "worker/worker_limits.h"

namespace quire {

// Checks everything in a plan that does not depend on what the rows hold: that columns have equal lengths, that sums
// agree, that ids are below their limits, and that no id occurs twice where it may occur only once. Executor and
// StepBatch check the rest.
class PlanCheck {
 public:
  explicit PlanCheck(const WorkerLimits& limits);

  // Returns INVALID_ARGUMENT with the field, its value and the limit when the plan is wrong.
  absl::Status Check(const v1::StepPlan& plan, uint64_t expected_step);

 private:
  absl::Status CheckSwaps(const v1::StepPlan& plan);
  absl::Status CheckCopies(const v1::StepPlan& plan);
  absl::Status CheckStarts(const v1::StepPlan& plan);
  absl::Status CheckForks(const v1::StepPlan& plan);
  absl::Status CheckAppends(const v1::StepPlan& plan);
  absl::Status CheckEndsAndRecords(const v1::StepPlan& plan);
  absl::Status CheckSlices(const v1::StepPlan& plan);
  absl::Status CheckSliceSums(const v1::StepPlan& plan) const;
  // Checks the changes of tables of groups behind group 0.
  absl::Status CheckChanges(const v1::StepPlan& plan) const;
  absl::Status CheckChange(const v1::StepPlan& plan, int index) const;
  // Checks a slice without tokens, which samples from the logits at the end of its parent's slice.
  absl::Status CheckEmptySlice(const v1::StepPlan& plan, int index) const;

  const WorkerLimits limits_;
  // These sets belong to the plan that is being checked.
  MarkSet started_rows_;
  MarkSet forked_rows_;  // Each row is marked with the index of its fork.
  MarkSet sliced_rows_;  // Each row is marked with the index of its slice.
  MarkSet appended_rows_;
  MarkSet other_rows_;  // The rows of ends, and then of records.
  MarkSet blocks_;
  MarkSet host_blocks_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_PLAN_CHECK_H_
