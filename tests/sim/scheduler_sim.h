#ifndef QUIRE_TESTS_SIM_SCHEDULER_SIM_H_
#define QUIRE_TESTS_SIM_SCHEDULER_SIM_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/paged_block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/sim/random.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// A life of one scheduler drawn from a seed: pool and block size, options, arrivals, cancels, deadlines and the loss of
// its worker, against a shadow worker. What must hold whatever happens is checked after every event.
class SchedulerSim {
 public:
  explicit SchedulerSim(uint64_t seed);

  // Runs until every request has ended. The error names the first contradiction.
  absl::Status Run();

  // Every plan that was made, in order.
  const std::vector<StepPlan>& plans() const { return plans_; }
  SchedulerCounts counts() const { return scheduler_->counts(); }
  int num_losses() const { return num_losses_; }
  int num_expired() const { return num_expired_; }

 private:
  // What the caller of a request has seen so far.
  struct Caller {
    Request request;
    SoloOutput solo;
    bool has_started = false;
    bool has_ended = false;
    std::vector<TokenId> tokens = {};
    std::vector<ScoredToken> prompt_logprobs = {};
  };

  void DrawWorld();
  Request DrawRequest();
  absl::Status Submit();
  absl::Status CancelSomeone();
  absl::Status Plan();
  absl::Status Commit();
  void LoseWorker();

  absl::Status CheckPlan(const StepPlan& plan, const SchedulerCounts& before) const;
  absl::Status CheckOutput(const StepOutput& output);
  absl::Status CheckFinished(const Finished& finished);
  absl::Status CheckEnd() const;
  Caller* Find(RequestId request);
  int num_live() const;

  Random random_;
  ShadowModel model_;
  SchedulerOptions options_;
  int num_blocks_ = 0;
  int block_size_ = 0;
  int num_requests_ = 0;  // To be submitted in all.
  int loss_period_ = 0;   // The worker is lost in one of so many events; 0: never.

  std::unique_ptr<PagedBlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ShadowWorker> worker_;
  std::deque<StepPlan> in_flight_;
  std::vector<StepPlan> plans_;
  std::map<RequestId, Caller> callers_;
  uint64_t next_request_ = 1;
  int64_t now_us_ = 0;
  int num_losses_ = 0;
  int num_expired_ = 0;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SCHEDULER_SIM_H_
