// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "kv_manager/worker_link/worker_client.h"
#include "tests/sim/poison_watch.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// Room for a few small requests: 16 blocks of 4 tokens, 8 rows.
WorkerDescription SmallWorker();

// A worker in the process of the test: a ShadowWorker behind the WorkerClient interface. It answers a plan within the
// call that sends it, unless HoldBack was called. Thread-safe.
class FakeWorker {
 public:
  explicit FakeWorker(WorkerDescription description = SmallWorker(), ShadowModel model = {});

  std::unique_ptr<WorkerClient> NewClient();  // At most one may exist at a time. The worker must outlive it.

  // The process dies. Its session and its memory are lost, and attempts to connect fail until Start is called.
  void Kill();
  void Start(WorkerDescription description);

  // The session ends for this reason. The process and its memory live on.
  void EndSession(absl::Status reason);

  // The worker is told to stop. It says so in its session, which must be open, and is gone when the manager has ended
  // the session.
  void Drain();

  // Sessions are not opened until LetOpen() is called.
  void HoldOpening();
  void LetOpen();
  bool is_opening() const;  // A session waits to be opened.

  // Plans are taken but not executed until Answer(). Probes are answered.
  void HoldBack();
  // Plans and probes are taken, and nothing is answered any more.
  void StopProcess();
  // Answers probes again. Plans are still held back.
  void ContinueProcess();
  void Answer();
  // Executes the held plans, and holds back later ones.
  void AnswerOnce();
  // From now on, plans that compute this token kill the process, which then restarts by itself. A named poison only
  // ends the session. With a reported one, only the sequence fails.
  void FailAt(const Poison& poison);
  // From now on the worker reports that its steps took this time. No real time passes.
  void ReportStepTime(int64_t us_per_token);
  // The next answer is for another step than its plan.
  void AnswerNextPlanWrongly();
  // The next tables that the worker reports have this block as the first block of the first row.
  void ReportWrongFirstBlock(BlockId block);

  bool is_gone() const;  // Whether it was killed, or has drained.
  // The first rule that a plan has broken. OK if every plan was right.
  absl::Status error() const;
  int num_plans() const;                 // Received plans.
  int num_adoptions() const;             // Sessions that were to adopt what the worker has.
  std::vector<int> plan_tokens() const;  // The tokens of each executed plan.
  std::vector<uint64_t> epochs() const;  // The epochs of all attempts.
  std::vector<std::string> refusals() const;

 private:
  class Client;

  struct TakenPlan {
    StepPlan plan;
    std::vector<PoisonWatch::FailedSlice> failed;  // The slices whose sequences fail.
  };

  void Open(bool adopts) QUIRE_REQUIRES(mutex_);
  void Restart() QUIRE_REQUIRES(mutex_);  // The memory is empty afterwards.
  void Execute(const TakenPlan& taken) QUIRE_REQUIRES(mutex_);

  mutable Mutex mutex_;
  WorkerDescription description_ QUIRE_GUARDED_BY(mutex_);
  const ShadowModel model_;
  std::optional<ShadowWorker> shadow_ QUIRE_GUARDED_BY(mutex_);  // Empty if the process is dead.
  WorkerClient::Listener* listener_ QUIRE_GUARDED_BY(mutex_) = nullptr;
  std::optional<uint64_t> epoch_ QUIRE_GUARDED_BY(mutex_);  // The epoch of the attempt or session, if there is one.
  std::deque<TakenPlan> held_back_ QUIRE_GUARDED_BY(mutex_);
  bool is_draining_ QUIRE_GUARDED_BY(mutex_) = false;
  bool holds_opening_ QUIRE_GUARDED_BY(mutex_) = false;
  std::optional<bool> held_opening_ QUIRE_GUARDED_BY(mutex_);  // Whether the session that waits is to adopt.
  bool holds_back_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_stopped_ QUIRE_GUARDED_BY(mutex_) = false;
  PoisonWatch poison_watch_ QUIRE_GUARDED_BY(mutex_);
  bool answers_wrongly_ QUIRE_GUARDED_BY(mutex_) = false;
  std::optional<BlockId> wrong_first_block_ QUIRE_GUARDED_BY(mutex_);
  int64_t us_per_token_ QUIRE_GUARDED_BY(mutex_) = 10;
  std::vector<int> plan_tokens_ QUIRE_GUARDED_BY(mutex_);
  absl::Status error_ QUIRE_GUARDED_BY(mutex_);
  int num_plans_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_adoptions_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> refusals_ QUIRE_GUARDED_BY(mutex_);
  std::vector<uint64_t> epochs_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_FAKE_WORKER_H_
