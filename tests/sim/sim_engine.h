#ifndef QUIRE_TESTS_SIM_SIM_ENGINE_H_
#define QUIRE_TESTS_SIM_SIM_ENGINE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/worker_status.h"
#include "scheduler/scheduler.h"
#include "tests/sim/audited_blocks.h"
#include "tests/sim/plan_audit.h"
#include "tests/sim/scenario.h"
#include "tests/sim/shadow_worker.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_report.h"

namespace quire {

// One worker and the core that serves it: scheduler, blocks and live requests are the real ones, only the worker is a
// shadow. Calls that make no sense now do nothing. Errors are contradictions; after one the engine is of no use.
class SimEngine {
 public:
  SimEngine(const SimWorker& worker, const ShadowModel& model);

  // Counts what it refuses. `now` orders deadlines.
  absl::Status Submit(std::shared_ptr<SimCaller> caller, int64_t deadline, int64_t now);
  absl::Status Cancel(SimCaller* caller);
  absl::Status CancelSample(SimCaller* caller, int sample_index);
  absl::Status Expire(int64_t now);

  absl::Status Plan();
  absl::Status Commit();  // The worker executes the oldest plan.
  void Lose();
  void Return();
  absl::Status RepeatLastResult() const;

  // Whether what the cache has of the tokens is in the worker's slots. Nothing while plans are in flight. Adds the
  // blocks to `found`.
  absl::Status Probe(const std::string& salt, std::vector<TokenId> tokens, std::set<BlockId>* found);

  bool has_worker() const { return worker_.has_value(); }
  bool is_busy() const { return !in_flight_.empty(); }
  bool is_full() const { return static_cast<int>(in_flight_.size()) == options_.plans_in_flight; }
  int num_live() const { return live_.size(); }
  WorkerLoad Load(const Request& request) const;
  uint64_t digest() const { return digest_; }  // Of all plans.

  // When all requests have ended: nothing is left over, and all counts are right. `callers` are all it ever accepted.
  absl::Status CheckEnd(const std::vector<std::shared_ptr<SimCaller>>& callers);
  SimReport Report() const;

 private:
  absl::Status CheckBlocks();
  absl::Status CheckCallers();
  absl::Status ExplainStall();
  absl::Status CheckCounts(const std::vector<std::shared_ptr<SimCaller>>& callers) const;
  absl::Status CheckCache(const std::vector<std::shared_ptr<SimCaller>>& callers);
  void Digest(const StepPlan& plan);

  const SimWorker options_;
  const ShadowModel model_;
  PrefixIndex index_;
  AuditedBlocks blocks_;
  Scheduler scheduler_;
  PlanAudit audit_;
  StepLoopStats stats_;
  LiveRequests live_;
  std::optional<ShadowWorker> worker_;  // None: it is lost.
  std::deque<StepPlan> in_flight_;
  std::optional<StepResult> last_result_;
  std::map<RequestId, std::shared_ptr<SimCaller>> callers_;  // Live ones.
  int num_unchecked_ = 0;                                    // Calls since all blocks were counted.
  uint64_t probe_ = UINT64_MAX / 2;                          // Sequence id of the last probe.
  int64_t num_probed_tokens_ = 0;
  int64_t num_crowded_plans_ = 0;  // After which somebody waits.
  bool has_searched_ = false;
  uint64_t digest_ = 0;
  SimReport report_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SIM_ENGINE_H_
