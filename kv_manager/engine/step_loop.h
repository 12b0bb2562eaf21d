// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_
#define QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/loop_inbox.h"
#include "kv_manager/engine/loop_report.h"
#include "kv_manager/engine/loop_view.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/worker_session.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/request.h"

namespace quire {

// One worker's requests, scheduler, blocks and connection, all owned by one thread that sleeps until something happens.
// A round takes what has come into the inbox, sends plans to the worker, and publishes what readers may see. The
// requests of a lost worker move to the loops of other workers. Requests that no other worker can take wait until
// their own worker is connected again in the next epoch. Either way everything that ran there is recomputed: its
// streams pause, then continue with the same tokens.
class StepLoop {
 public:
  // `clock` is borrowed.
  StepLoop(const StepLoopOptions& options, std::unique_ptr<WorkerClient> client, StepLoopHooks hooks,
           const Clock* clock);
  ~StepLoop();  // Stops.
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Runs the loop on a thread of its own. Tests call RunOnce() instead.
  void Start();
  // Ends the thread. Requests that have not ended fail with UNAVAILABLE, and so does every later Submit. The worker
  // keeps what it has of them. Restorable ones fail with NextManagerError.
  void Stop();

  // Thread-safe. None of these functions waits for the loop:

  // See Engine::Submit. `hashes` are the hashes of the request's salt and prompt. `ticket` is destroyed when the
  // request has ended.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes,
                      std::unique_ptr<TenantQuotas::Ticket> ticket = nullptr) {
    return inbox_.Submit(std::move(request), std::move(sink), hashes, std::move(ticket));
  }
  // See LoopInbox::Adopt.
  void Adopt(MovingRequest moving, PromptHashes* hashes) { inbox_.Adopt(std::move(moving), hashes); }
  // See Engine::Cancel and LoopInbox::Cancel.
  std::optional<RequestSubmitted> Cancel(RequestId request, FinishReason reason = FinishReason::kCancelled) {
    return inbox_.Cancel(request, reason);
  }
  // See Engine::CancelSample and LoopInbox::CancelSample.
  void CancelSample(RequestId request, int sample_index) { inbox_.CancelSample(request, sample_index); }
  // The loop calls `question` once: at the end of its next round, after it has planned, with everything that was
  // submitted before. When the loop stops, Stop() calls it. It must be quick. RESOURCE_EXHAUSTED when too many
  // questions wait, UNAVAILABLE when the loop has stopped; then it is not called.
  absl::Status Ask(LoopQuestion question) { return inbox_.Ask(std::move(question)); }
  // From now on load() says that the worker gets no new requests and status() that it drains, or no longer.
  void SetDrainedByOperator(bool is_drained, bool migrates = false) {
    inbox_.SetDrainedByOperator(is_drained, migrates);
  }
  // The status at the end of the loop's last round, as one consistent value. Never null.
  std::shared_ptr<const WorkerStatus> status() const { return inbox_.status(); }
  // The load at the end of the loop's last round, with the requests that were submitted since.
  WorkerLoad load() const { return inbox_.load(); }
  // The same, with the number of cached tokens of this request's prompt. `hashes` as in Submit().
  WorkerLoad load(const Request& request, PromptHashes* hashes) const { return inbox_.load(request, hashes); }

  // One round: takes the inbox, does everything that is due, publishes. Returns when to call again at the latest, in
  // time of the clock. REQUIRES: no thread was started, or this is the thread.
  int64_t RunOnce();

 private:
  void Handle(RequestSubmitted event);
  void Handle(RequestMoved event);
  void Handle(RequestCancelled event);
  void Handle(SampleCancelled event);
  void Handle(WorkerDescribed event) { session_.OnDescribed(std::move(event), now_us_); }
  void Handle(SessionOpened event) { session_.OnOpened(event, now_us_); }
  void Handle(PlanAnswered event);
  void Handle(MigrationChanged event) { session_.SetMigrating(event.is_wanted); }
  void Handle(WorkerDraining event) { session_.OnDraining(event); }
  void Handle(WorkerProbed event) { session_.OnProbed(event, now_us_); }
  void Handle(WorkerLost event) { session_.OnLost(std::move(event), now_us_); }

  // Logs how many requests of other workers this round has taken over. What moves to balance the load does not count.
  void LogTakenOver();
  // Hands the request to the scheduler. An error is the reason of the refusal.
  absl::Status Queue(RequestSubmitted* event);
  // Gives a request that cannot continue here to another worker. Returns whether there is one. A request that has just
  // been submitted moves as well; it is counted here before, like all requests of this loop.
  bool PassOn(RequestMoved* event);
  bool PassOn(RequestSubmitted* event);
  // A waiting request has given its place in a full queue to a request of another tenant.
  void OnDisplaced(const Displaced& displaced);
  // The worker has ended sequences of these requests.
  void FailRequests(const std::vector<FailedRequest>& failed);
  // Counts a refusal for the tenant.
  void CountRefusal(const std::string& tenant);
  void ExpireDeadlines();
  void PlanSteps();
  bool EndPinForRequests();
  void AnswerQuestions(Scheduler* scheduler, PagedBlockManager* blocks);
  void Publish();
  int64_t NextWake() const;
  void ThreadMain();

  const StepLoopOptions options_;
  const StepLoopHooks hooks_;
  const Clock* const clock_;
  LoopInbox inbox_;

  // Owned by the loop's thread.
  std::vector<LoopEvent> events_;        // Taken from the inbox, being handled.
  std::vector<LoopQuestion> questions_;  // Taken from the inbox, to be answered in this round.
  int64_t now_us_ = 0;                   // The start of the current round.
  struct TakenOver {
    int num_requests = 0;
    int num_changed = 0;  // Requests that continue with other numerics.
  };
  LogLimiter failure_log_{5};  // Clients can let requests fail as often as they like.
  TakenOver taken_over_;       // Taken over in this round.
  LoopReport report_;
  LiveRequests live_;
  WorkerSession session_;  // It stands after the inbox, which its client calls until it is destroyed.

  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_
