#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// Room for a few small requests: 16 blocks of 4 tokens, 8 rows.
WorkerDescription SmallWorker();

// A worker in the test's own process: a ShadowWorker behind the WorkerClient seam. It answers within the call, unless
// it is told to hold back. Thread-safe.
class FakeWorker {
 public:
  explicit FakeWorker(WorkerDescription description = SmallWorker(), ShadowModel model = {});

  std::unique_ptr<WorkerClient> NewClient();  // One at a time; the worker outlives it.

  // The process dies: the session is lost, memory too, and attempts fail until it is started again.
  void Kill();
  void Start(WorkerDescription description);

  // It is told to stop: says so in the session, which must be open, and is gone when the manager has ended it.
  void Drain();

  // Plans are taken but not executed until Answer().
  void HoldBack();
  void Answer();
  // The same, and later ones are held back too.
  void AnswerOnce();
  // Every plan kills it from now on; it starts again by itself.
  void DieOfEveryPlan();
  // Says that steps took so long; no time passes.
  void TakeTime(int64_t us_per_token);
  // The next answer is for another step than its plan.
  void AnswerNextPlanWrongly();
  // Says of the next tables that are asked for that the first block of the first row is this one.
  void TellFirstBlockWrongly(BlockId block);

  bool is_gone() const;  // Killed, or drained.
  // What the first broken rule was; OK as long as every plan was right.
  absl::Status error() const;
  int num_plans() const;                 // Received.
  std::vector<int> plan_tokens() const;  // Of each plan that was executed.
  std::vector<uint64_t> epochs() const;  // Of all attempts.

 private:
  class Client;

  void Execute(const StepPlan& plan);

  mutable std::mutex mutex_;  // Guards everything.
  WorkerDescription description_;
  const ShadowModel model_;
  std::optional<ShadowWorker> worker_;  // None: the process is dead.
  WorkerClient::Listener* listener_ = nullptr;
  std::optional<uint64_t> epoch_;  // Of the attempt or session, if there is one.
  std::deque<StepPlan> held_back_;
  bool is_draining_ = false;
  bool holds_back_ = false;
  bool dies_of_plans_ = false;
  bool answers_wrongly_ = false;
  std::optional<BlockId> wrong_first_block_;
  int64_t us_per_token_ = 10;
  std::vector<int> plan_tokens_;
  absl::Status error_;
  int num_plans_ = 0;
  std::vector<uint64_t> epochs_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_
