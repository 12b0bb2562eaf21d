// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_PLAN_AUDIT_H_
#define QUIRE_TESTS_SIM_PLAN_AUDIT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_plan.h"
#include "tests/sim/audited_blocks.h"
#include "tests/sim/scenario.h"

namespace quire {

// The largest number of blocks that the request can hold: the whole blocks of its prompt once, and the other blocks for
// each sample or beam.
int64_t MostBlocks(const Request& request, const CacheGroups& groups);
// The part of it that one sequence needs in groups with windows.
int64_t WindowBlocks(const CacheGroups& groups, int64_t num_tokens);
// Checks the plans of one scheduler against all earlier plans: limits, the order of service, free rows, and that no
// table names a block that was allocated to another sequence in the meantime.
class PlanAudit {
 public:
  // `blocks` is borrowed.
  PlanAudit(const SimWorker& worker, const AuditedBlocks* blocks);

  void OnSubmitted(const Request& request);
  // A request has come from another worker. It is served before those that were submitted here.
  void OnAdopted(const Request& request);
  // These requests of an earlier manager continue here, in this order. They are served before all others, also before
  // those that came before them.
  void OnRestored(const std::vector<Request>& requests);
  // A sequence of a restored request runs in this row.
  void OnRunsOn(RowId row, SequenceId sequence, RequestId request);
  void OnEnded(RequestId request);
  // The blocks of these sequences were freed or swapped out, outside of Plan.
  void OnReleased(const std::vector<SequenceId>& sequences);
  void OnAbandoned();

  // The error names the rule that the plan breaks. The sequences `preempted` lost their blocks while it was made.
  // `blocks_of` are the blocks that each request held before if it ran, or must get to run.
  absl::Status Check(const StepPlan& plan, const SchedulerCounts& before, const SchedulerCounts& after,
                     const std::vector<SequenceId>& preempted, const std::map<RequestId, int64_t>& blocks_of);

  // The requests of the old pool move to this one, in their order.
  void TakeOver(const PlanAudit& old);

  // Where the first slice of a request that has just started began.
  int first_position(RequestId request) const { return live_.at(request).first_position; }

  int num_live() const { return static_cast<int>(live_.size()); }

 private:
  struct Entry {
    BlockId block;
    uint32_t generation;
  };
  struct Row {
    SequenceId sequence{0};
    bool has_run = false;  // Whether it has had a slice since it was started.
    std::vector<Entry> table;
  };
  struct Live {
    std::pair<int, uint64_t> rank;  // Under policies that use ranks, the smaller rank is served first.
    int num_prompt_tokens;
    int max_tokens;
    int num_rows;
    uint64_t seed;
    std::string tenant;
    int64_t most_blocks = 0;
    int num_running = 0;     // Running sequences.
    int first_position = 0;  // Where its first slice since it entered began.
  };

  // Whether the plan has a decode of a sequence that ran before.
  bool HasDecode(const StepPlan& plan) const;
  int MaxTokens(const StepPlan& plan) const;
  absl::Status CheckLimits(const StepPlan& plan, const SchedulerCounts& before, const SchedulerCounts& after) const;
  absl::Status CheckVictims(const SchedulerCounts& before, const SchedulerCounts& after,
                            const std::vector<SequenceId>& preempted, const std::map<RequestId, int64_t>& blocks_of);
  // A tenant gets blocks for another request only within its share.
  absl::Status CheckShares(const StepPlan& plan, const std::map<RequestId, int64_t>& blocks_of) const;
  // The blocks that the running requests of each tenant hold.
  std::map<std::string, int64_t> HeldByTenants(const std::map<RequestId, int64_t>& blocks_of) const;
  absl::Status EndRows(const StepPlan& plan) const;
  absl::Status TakeRows(const StepPlan& plan);
  absl::Status CheckOrder(const StepPlan& plan) const;
  absl::Status CheckTables(const StepPlan& plan);
  absl::Status CheckNobodyWaitsInVain(const StepPlan& plan, bool has_preempted);
  void Add(const Request& request, uint64_t number);
  void Occupy(RowId row, SequenceId sequence, RequestId request);
  void Release(SequenceId sequence);
  bool goes_by_rank() const;

  const SimWorker worker_;
  const AuditedBlocks* const blocks_;
  std::vector<Row> rows_;
  absl::flat_hash_map<SequenceId, std::pair<RowId, RequestId>> running_;
  std::map<RequestId, Live> live_;
  absl::flat_hash_map<uint64_t, RequestId> by_seed_;
  uint64_t num_submitted_ = 0;
  uint64_t num_adopted_ = 0;
  int num_plans_in_vain_ = 0;  // Consecutive plans that could have admitted a request and did not.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_PLAN_AUDIT_H_
