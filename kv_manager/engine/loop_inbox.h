// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_LOOP_INBOX_H_
#define QUIRE_KV_MANAGER_ENGINE_LOOP_INBOX_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/engine/live_requests.h"
#include "kv_manager/engine/loop_view.h"
#include "kv_manager/engine/moving_request.h"
#include "kv_manager/engine/placement.h"
#include "kv_manager/engine/request_sink.h"
#include "kv_manager/engine/step_loop_options.h"
#include "kv_manager/engine/tenant_quotas.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/worker_link/worker_client.h"
#include "scheduler/moved_request.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// Callers and the worker tell a step loop these events. An event of the worker has the epoch of the connection attempt
// or session that it belongs to.
struct RequestSubmitted {
  Request request;
  std::shared_ptr<RequestSink> sink;
  std::unique_ptr<TenantQuotas::Ticket> ticket;  // May be null.
};
// The loop of another worker has given the request away, with everything that it has become so far.
struct RequestMoved {
  MovedRequest request;
  LiveRequests::Entry live;
  FamilyId family;   // See MovingRequest.
  bool was_refused;  // See MovingRequest.
  bool is_rebalanced;
};
struct RequestCancelled {
  RequestId request;
  FinishReason reason;
};
struct SampleCancelled {
  RequestId request;
  int sample_index;
};
// Says whether the operator wants the requests of this worker to move to other workers.
struct MigrationChanged {
  bool is_wanted;
};
struct WorkerDescribed {
  uint64_t epoch;
  WorkerDescription description;
};
struct SessionOpened {
  uint64_t epoch;
  std::unique_ptr<WorkerInventory> inventory = nullptr;  // An earlier session has left it. Null: nothing.
};
struct PlanAnswered {
  uint64_t epoch;
  StepResult result;
  int64_t duration_us;
};
struct WorkerDraining {
  uint64_t epoch;
};
struct WorkerProbed {
  uint64_t epoch;
};
struct WorkerLost {
  uint64_t epoch;
  absl::Status reason;
};
using LoopEvent = std::variant<RequestSubmitted, RequestMoved, RequestCancelled, SampleCancelled, MigrationChanged,
                               WorkerDescribed, SessionOpened, PlanAnswered, WorkerDraining, WorkerProbed, WorkerLost>;

// The error of calls that come after Stop().
absl::Status ShuttingDownError();
// The error with which a manager that stops ends the calls of requests for the next manager, see IsRestorable. Clients
// try again.
absl::Status NextManagerError();
// The error of a request whose generation has lost its workers to another one.
absl::Status ModelReplacedError();
// The error of a request that could continue only with other numerics. `cause` says why it cannot continue with its
// own.
absl::Status NumericsDifferError(absl::string_view cause, absl::string_view own, absl::string_view others);

// Holds what a step loop shares with other threads: the events and questions that the loop has not taken yet, the
// status and load that it has published, whether the worker drains, and the index of cached prefixes. Thread-safe. No
// call waits for the loop. The functions under "For the loop" are for the loop's thread only.
class LoopInbox : public WorkerClient::Listener {
 public:
  // `options` and `clock` are borrowed. Readers see default values before the first Publish().
  LoopInbox(const StepLoopOptions* options, const Clock* clock);
  LoopInbox(const LoopInbox&) = delete;
  LoopInbox& operator=(const LoopInbox&) = delete;

  // Puts the request into the inbox. `hashes` are the hashes of its salt and prompt. RESOURCE_EXHAUSTED when the inbox
  // is full, UNAVAILABLE after Stop(); then nothing has changed. In a full inbox, each tenant still has room for its
  // share: an equal part for each tenant with requests there, and at least one request. All tenants together have at
  // most twice `options.max_inbox_requests`.
  absl::Status Submit(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes,
                      std::unique_ptr<TenantQuotas::Ticket> ticket = nullptr) QUIRE_EXCLUDES(mutex_);
  // Cancel() cancels a request, and CancelSample() cancels one of its samples. Both do nothing when the request was not
  // submitted here, was cancelled or has ended. So the inbox keeps at most one Cancel for each request. Callers must
  // call CancelSample at most once for each sample, as TokenStream does. A submitted request that the loop has not
  // taken leaves the inbox at once: Cancel() returns it, and the loop never hears of it. Destroy it without locks,
  // because its sink may own much.
  std::optional<RequestSubmitted> Cancel(RequestId request, FinishReason reason) QUIRE_EXCLUDES(mutex_);
  void CancelSample(RequestId request, int sample_index) QUIRE_EXCLUDES(mutex_);
  // Puts a request of another loop into the inbox. It counts as load like one that was submitted. `hashes` are the
  // hashes of its salt and prompt. There is no limit for these requests, because each of them was accepted before.
  // REQUIRES: Stop() was not called.
  void Adopt(MovingRequest moving, PromptHashes* hashes) QUIRE_EXCLUDES(mutex_);
  // The loop has a request that was not submitted here, but to another manager. Called by the loop.
  void AddRestored(RequestId request) QUIRE_EXCLUDES(mutex_);
  // RESOURCE_EXHAUSTED when too many questions wait, UNAVAILABLE after Stop(); then `question` is never called.
  absl::Status Ask(LoopQuestion question) QUIRE_EXCLUDES(mutex_);
  // Sets whether the operator wants the worker to get no new requests. load() and status() show this at once, before
  // the next Publish(). With `migrates`, the loop gives its requests to other workers.
  void SetDrainedByOperator(bool is_drained, bool migrates = false) QUIRE_EXCLUDES(mutex_);

  // The status as of the last Publish(). Never null.
  std::shared_ptr<const WorkerStatus> status() const QUIRE_EXCLUDES(mutex_);
  // The load as of the last Publish(), with the requests that were submitted since.
  WorkerLoad load() const QUIRE_EXCLUDES(mutex_);
  // The same, with the number of tokens of this request's prompt that are cached or will be soon. `hashes` as in
  // Submit().
  WorkerLoad load(const Request& request, PromptHashes* hashes) const QUIRE_EXCLUDES(mutex_);

  // WorkerClient::Listener. The WorkerClient calls these functions on its own threads.
  void OnDescribed(uint64_t epoch, WorkerDescription description) override;
  void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) override;
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override;
  void OnDraining(uint64_t epoch) override;
  void OnProbed(uint64_t epoch) override;
  void OnLost(uint64_t epoch, absl::Status reason) override;

  // Refuses requests and questions from now on, and wakes the loop. Any thread may call it.
  void Stop() QUIRE_EXCLUDES(mutex_);

  // The loop calls these.

  // Waits until there is something to take, the clock shows `wake_us` or Stop() is called. Returns false after Stop().
  bool Wait(int64_t wake_us) QUIRE_EXCLUDES(mutex_);
  // Moves the events and the questions out of the inbox. Both vectors must be empty. The submitted requests among the
  // events count as load until the next Publish(). `events` is borrowed until the next call: Release() reads it.
  void Take(std::vector<LoopEvent>* events, std::vector<LoopQuestion>* questions) QUIRE_EXCLUDES(mutex_);
  // Forgets a request of this loop, which continues in another one. The result has what its caller has cancelled and
  // the loop has not handled: events that are in the inbox, or among those that the loop has taken.
  MovingRequest::Wishes Release(RequestId request) QUIRE_EXCLUDES(mutex_);
  // Replaces the index of the pool's prefixes. Null: nothing is cached.
  void SetPrefixIndex(std::shared_ptr<PrefixIndex> index) QUIRE_EXCLUDES(mutex_);
  // Replaces what readers see and forgets the requests that have ended. `is_drained_by_worker` tells
  // whether the worker itself has said that it drains. Returns whether the loop must call StepLoopHooks::on_change:
  // readiness has changed, or the last request has ended, or the last one that is not restorable, or a request has left
  // the inbox before the loop took it.
  bool Publish(const WorkerLoad& load, bool is_drained_by_worker, const WorkerStatus& status,
               const std::vector<RequestId>& ended) QUIRE_EXCLUDES(mutex_);

 private:
  void Post(LoopEvent event) QUIRE_EXCLUDES(mutex_);
  // What requests in the inbox add to the load.
  struct Added {
    int requests = 0;
    int restorable = 0;  // Requests for which IsRestorable is true.
    int rows = 0;        // Wanted rows.
    int64_t blocks = 0;  // Wanted blocks.
    int64_t tokens = 0;  // Weight in the waiting queue, in tokens.

    void Add(const Added& other, int sign);
    void AddTo(WorkerLoad* load) const;
  };
  // A submitted request in the inbox.
  struct Submitted {
    std::list<LoopEvent>::iterator event;
    Added added;
  };

  absl::Status PostRequest(RequestSubmitted submitted) QUIRE_EXCLUDES(mutex_);
  // What a request with this number of tokens adds.
  Added AddedBy(const Request& request, int num_tokens) const QUIRE_REQUIRES(mutex_);
  // Whether the inbox has room for one more request of the tenant.
  bool HasRoomFor(const std::string& tenant) const QUIRE_REQUIRES(mutex_);
  // Takes a submitted request out of the inbox, if it is still there.
  std::optional<RequestSubmitted> Withdraw(RequestId request) QUIRE_REQUIRES(mutex_);
  // Returns null without a prefix cache, or when the request does not use it.
  std::shared_ptr<PrefixIndex> IndexFor(const Request& request) const QUIRE_EXCLUDES(mutex_);

  const StepLoopOptions* const options_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  CondVar changed_;
  const std::vector<LoopEvent>* taken_ = nullptr;  // Last result of Take(). Only the loop's thread uses it.
  std::list<LoopEvent> events_ QUIRE_GUARDED_BY(mutex_);
  std::vector<LoopQuestion> questions_ QUIRE_GUARDED_BY(mutex_);
  Added added_ QUIRE_GUARDED_BY(mutex_);  // Sum over all requests in events_.
  absl::flat_hash_map<RequestId, Submitted> submitted_ QUIRE_GUARDED_BY(mutex_);
  // The number of requests that each tenant has in submitted_. No number is 0.
  absl::flat_hash_map<std::string, int> tenants_ QUIRE_GUARDED_BY(mutex_);
  bool has_withdrawn_ QUIRE_GUARDED_BY(mutex_) = false;                  // Since the last Publish().
  absl::flat_hash_set<RequestId> cancellable_ QUIRE_GUARDED_BY(mutex_);  // Submitted, not cancelled and not ended.
  bool is_stopped_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_drained_by_operator_ QUIRE_GUARDED_BY(mutex_) = false;
  bool migrates_ QUIRE_GUARDED_BY(mutex_) = false;  // As of the last MigrationChanged.
  bool is_drained_by_worker_ QUIRE_GUARDED_BY(mutex_) = false;
  WorkerLoad load_ QUIRE_GUARDED_BY(mutex_);  // Without the requests in events_.
  std::shared_ptr<const WorkerStatus> status_ QUIRE_GUARDED_BY(mutex_);
  std::shared_ptr<PrefixIndex> prefix_index_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_LOOP_INBOX_H_
