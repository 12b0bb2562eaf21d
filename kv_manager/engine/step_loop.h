#ifndef QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_
#define QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/table_audit.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "kv_manager/worker_link/worker_link.h"
#include "scheduler/request.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_budget.h"

namespace quire {

struct StepLoopOptions {
  std::string address;         // Of the worker, for logs and status.
  SchedulerOptions scheduler;  // Narrowed to what the worker can do once it has described itself.
  WorkerLinkOptions link;
  bool has_prefix_cache = true;
  double max_pinned_share = 0.25;        // Of the pool: what pins may hold.
  int64_t worker_grace_us = 30'000'000;  // Requests wait this long for a lost worker before they fail.
  int64_t max_step_us = 0;               // Steps are to take no longer, see StepBudget; 0: as long as they take.
  int max_inbox_requests = 1024;         // Submitted and not yet seen by the loop.
  int max_questions = 64;                // Asked and not yet answered.
  TenantLabels* tenants = nullptr;       // Borrowed; null: all requests count under one label.
};

// One worker's requests, scheduler, blocks and connection, all owned by one thread that sleeps until something happens:
// results come in, a plan goes out, what the step has brought goes to the sinks. A lost worker is connected again in
// the next epoch and everything that ran there is recomputed: its streams pause, then go on with the same tokens.
class StepLoop : private WorkerClient::Listener {
 public:
  struct Hooks {
    // Whether the worker may serve here; an error is its last_error. Called by the loop.
    std::function<absl::Status(const WorkerDescription&)> admit_worker;
    // Something that status() or load() tells has changed for outsiders: readiness, or the last request has ended.
    std::function<void()> on_change;
  };

  // What a question sees, while it is called.
  struct View {
    const std::string& address;  // Of the worker.
    const WorkerLink& link;
    Scheduler* scheduler;       // Null, as blocks, before the worker has joined and once the loop has stopped.
    PagedBlockManager* blocks;  // Those of a lost worker are empty.
    TableAuditor* tables;
    int64_t now_us;
  };
  using Question = std::function<void(const View&)>;

  // `clock` is borrowed.
  StepLoop(const StepLoopOptions& options, std::unique_ptr<WorkerClient> client, Hooks hooks, const Clock* clock);
  ~StepLoop() override;  // Stops.
  StepLoop(const StepLoop&) = delete;
  StepLoop& operator=(const StepLoop&) = delete;

  // Runs the loop on a thread of its own. Tests call RunOnce() instead.
  void Start();
  // Ends the thread. Requests that have not ended fail with UNAVAILABLE, and so does every later Submit.
  void Stop();

  // Thread-safe, none of them waits for the loop:

  // See Engine::Submit. `hashes` are those of the request's salt and prompt.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes);
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink);
  // See Engine::Cancel. Kept only for a request that is submitted here and has not ended, and once: however slow the
  // loop, there are never more cancels in the inbox than requests in it and in the loop.
  void Cancel(RequestId request, FinishReason reason = FinishReason::kCancelled);
  // See Engine::CancelSample. Kept only for a request that is submitted here and has not ended.
  void CancelSample(RequestId request, int sample_index);
  // The loop calls `question` once: when it has planned in its next round, after everything that was submitted before;
  // or Stop does. It must be quick. RESOURCE_EXHAUSTED when too many wait already, UNAVAILABLE when the loop has
  // stopped; then it is not called.
  absl::Status Ask(Question question);
  // Whether load() says that the worker gets no new requests, and status() that it drains. At once.
  void SetDraining(bool is_draining);
  // As of the end of the last round of the loop; one consistent value. Never null.
  std::shared_ptr<const WorkerStatus> status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Includes what was submitted since.
  WorkerLoad load() const;
  // With what is cached of this request's prompt. `hashes` are those of its salt and prompt.
  WorkerLoad load(const Request& request, PromptHashes* hashes) const;
  // Events that the loop has not taken yet.
  int inbox_size() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int>(inbox_.size());
  }

  // One round: takes the inbox, does all that is due, publishes. Returns when to call again at the latest, in time of
  // the clock. REQUIRES: no thread was started, or it is the thread.
  int64_t RunOnce();

 private:
  struct Submitted {
    Request request;
    std::shared_ptr<RequestSink> sink;
    int wanted_blocks;
  };
  struct Cancelled {
    RequestId request;
    FinishReason reason;
  };
  struct SampleCancelled {
    RequestId request;
    int sample_index;
  };
  struct Described {
    uint64_t epoch;
    WorkerDescription description;
  };
  struct Opened {
    uint64_t epoch;
  };
  struct Answered {
    uint64_t epoch;
    StepResult result;
    int64_t duration_us;
  };
  struct Draining {
    uint64_t epoch;
  };
  struct Lost {
    uint64_t epoch;
    absl::Status reason;
  };
  using Event = std::variant<Submitted, Cancelled, SampleCancelled, Described, Opened, Answered, Draining, Lost>;

  // WorkerClient::Listener, on the client's threads.
  void OnDescribed(uint64_t epoch, WorkerDescription description) override {
    Post(Described{epoch, std::move(description)});
  }
  void OnOpened(uint64_t epoch) override { Post(Opened{epoch}); }
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override {
    Post(Answered{epoch, std::move(result), duration_us});
  }
  void OnDraining(uint64_t epoch) override { Post(Draining{epoch}); }
  void OnLost(uint64_t epoch, absl::Status reason) override { Post(Lost{epoch, std::move(reason)}); }

  void Post(Event event);
  absl::Status Post(Request request, std::shared_ptr<RequestSink> sink);
  // Null without a prefix cache, or when the request does without.
  std::shared_ptr<PrefixIndex> IndexFor(const Request& request) const;
  void TakeInbox();

  void Handle(Submitted event);
  void Handle(Cancelled event);
  void Handle(SampleCancelled event);
  void Handle(Described event);
  void Handle(Opened event);
  void Handle(Answered event);
  void Handle(Draining event);
  void Handle(Lost event);

  absl::Status Queue(Submitted* event);
  bool MayReturn() const;
  void AdoptPool(const WorkerDescription& description);
  void LoseWorker(absl::Status reason);
  void EndDrainedSession();
  void LogFailedAttempt(const absl::Status& reason);
  void CountFruitlessSession();
  void FailAll(const absl::Status& status);

  void ExpireDeadlines();
  void PollLink();
  bool EndPinForRequests();
  void PlanSteps();
  void AnswerQuestions(Scheduler* scheduler, PagedBlockManager* blocks);
  void CountSchedulerWork();
  void Publish();
  int64_t NextWake() const;
  void ThreadMain();

  const StepLoopOptions options_;
  const Hooks hooks_;
  const Clock* const clock_;

  // The inbox and what others read. Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Event> inbox_;
  int inbox_requests_ = 0;                      // Submitted events in inbox_.
  int64_t inbox_wanted_blocks_ = 0;             // Of those.
  absl::flat_hash_set<RequestId> cancellable_;  // In the inbox or the loop, and not cancelled.
  std::vector<Question> asked_;
  bool stopping_ = false;
  bool is_draining_ = false;    // The operator's wish.
  bool worker_drains_ = false;  // The worker's own.
  WorkerLoad load_;             // Without the inbox.
  std::shared_ptr<const WorkerStatus> status_;
  std::shared_ptr<PrefixIndex> prefix_index_;  // Of the pool; null until the worker has joined, or without a cache.

  // Owned by the loop.
  std::vector<Event> events_;        // Taken from the inbox, being handled.
  std::vector<Question> questions_;  // Taken from asked_.
  int64_t now_us_ = 0;               // Start of the current round.
  WorkerStatus current_;             // What will be published, and the stats.
  LiveRequests live_{&current_.stats};
  std::optional<WorkerDescription> description_;  // Of the pool below.
  std::unique_ptr<PagedBlockManager> blocks_;     // Null until the worker has joined.
  std::unique_ptr<Scheduler> scheduler_;          // Null until the worker has joined.
  TableAuditor table_auditor_;
  std::optional<StepBudget> step_budget_;  // With max_step_us, of the worker that scheduler_ is for.
  SchedulerCounts counted_;                // Of scheduler_'s counts, those that are in the stats.
  int64_t counted_evictions_ = 0;          // Likewise of blocks_.
  bool logged_waiting_ = false;            // That the worker is not there yet, since it was lost.
  absl::Status logged_reason_;             // Why it cannot be used; OK: nothing was logged since it was lost.
  int64_t lost_since_us_ = 0;              // While no session is open.
  int64_t tokens_at_open_ = 0;             // stats.generated_tokens when the session was opened.
  bool drain_is_public_ = false;           // load_ says that no requests are wanted, for the worker drains.
  int num_fruitless_sessions_ = 0;         // In a row: lost with plans in flight, before they gave a token.
  WorkerLink link_;                        // Last: its client calls us until it is gone.

  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_STEP_LOOP_H_
