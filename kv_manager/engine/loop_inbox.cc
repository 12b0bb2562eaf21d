// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/loop_inbox.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_reason.h"
#include "scheduler/waiting_queue.h"

namespace quire {

absl::Status ShuttingDownError() {
  return WithRetryDelay(WithReason(absl::UnavailableError("the manager is shutting down"), "DRAINING"),
                        /*delay_ms=*/1000);
}

absl::Status NextManagerError() {
  return WithRetryDelay(
      WithReason(absl::UnavailableError("this manager stops, and the next one continues the request"), "RESTORING"),
      /*delay_ms=*/100);
}

absl::Status ModelReplacedError() {
  return WithRetryDelay(WithReason(absl::UnavailableError("the workers with the model of this request were restarted "
                                                          "with another model; the request can be sent again"),
                                   "MODEL_REPLACED"),
                        /*delay_ms=*/100);
}

absl::Status NumericsDifferError(absl::string_view cause, absl::string_view own, absl::string_view others) {
  const std::string message =
      absl::StrCat(cause, "; its numerics were \"", own, "\", and the workers that are ready have \"", others,
                   "\", which may give other tokens (--failover=exact); the request can be sent again");
  return WithRetryDelay(WithReason(absl::UnavailableError(message), "NUMERICS_DIFFER",
                                   {{"numerics", std::string(own)}, {"other_numerics", std::string(others)}}),
                        /*delay_ms=*/100);
}

LoopInbox::LoopInbox(const StepLoopOptions* options, const Clock* clock)
    : options_(options), clock_(clock), status_(std::make_shared<WorkerStatus>()) {}

absl::Status LoopInbox::Submit(Request request, std::shared_ptr<RequestSink> sink, PromptHashes* hashes,
                               std::unique_ptr<TenantQuotas::Ticket> ticket) {
  const std::shared_ptr<PrefixIndex> index = IndexFor(request);
  if (index != nullptr) index->Expect(request.id, hashes);
  const RequestId id = request.id;
  const absl::Status status = PostRequest({std::move(request), std::move(sink), std::move(ticket)});
  if (!status.ok() && index != nullptr) index->Forget(id);
  return status;
}

absl::Status LoopInbox::PostRequest(RequestSubmitted submitted) {
  const Request& request = submitted.request;
  const MutexLock lock(&mutex_);
  if (is_stopped_) return ShuttingDownError();
  if (!HasRoomFor(request.tenant)) {
    return absl::ResourceExhaustedError(absl::StrCat("the inbox of the chosen worker has ", added_.requests,
                                                     " requests, the limit is ", options_->max_inbox_requests));
  }
  const RequestId id = request.id;
  const Added added = AddedBy(request, NumKnownTokens(request));
  added_.Add(added, 1);
  ++tenants_[request.tenant];
  cancellable_.insert(id);
  events_.emplace_back(std::move(submitted));
  submitted_[id] = {std::prev(events_.end()), added};
  changed_.NotifyOne();
  return absl::OkStatus();
}

bool LoopInbox::HasRoomFor(const std::string& tenant) const {
  const int limit = options_->max_inbox_requests;
  if (added_.requests < limit) return true;
  // Clients without tokens name their tenants, so these alone are no bound.
  if (added_.requests >= 2 * limit) return false;
  const auto own = tenants_.find(tenant);
  if (own == tenants_.end()) return true;
  return own->second < limit / static_cast<int>(tenants_.size());
}

LoopInbox::Added LoopInbox::AddedBy(const Request& request, int num_tokens) const {
  const bool is_of_waiting_tenant = load_.waiting_tenant.has_value() && *load_.waiting_tenant == request.tenant;
  const bool waits_before_others = ServesByArrival(options_->scheduler.policy) || is_of_waiting_tenant;
  return {.requests = 1,
          .restorable = IsRestorable(request, *options_),
          .rows = NumRows(request),
          .blocks = load_.groups.NumBlocks(num_tokens + 1),  // Includes the next token.
          .tokens = waits_before_others ? WaitingQueue::kTokensPerRow * NumRows(request) + num_tokens : 0};
}

void LoopInbox::Added::Add(const Added& other, int sign) {
  requests += sign * other.requests;
  restorable += sign * other.restorable;
  rows += sign * other.rows;
  blocks += sign * other.blocks;
  tokens += sign * other.tokens;
}

void LoopInbox::Added::AddTo(WorkerLoad* load) const {
  load->num_requests += requests;
  load->num_restorable += restorable;
  load->num_rows += rows;
  load->wanted_blocks += blocks;
  load->forecast.waiting_tokens += tokens;
}

void LoopInbox::Adopt(MovingRequest moving, PromptHashes* hashes) {
  const RequestId id = moving.request.id();
  const std::shared_ptr<PrefixIndex> index = IndexFor(moving.request.request());
  if (index != nullptr) index->Expect(id, hashes);
  const MutexLock lock(&mutex_);
  QUIRE_CHECK(!is_stopped_) << id;
  added_.Add(AddedBy(moving.request.request(), LiveRequests::NumTokens(moving.live)), 1);
  if (moving.wishes.is_cancellable) cancellable_.insert(id);
  events_.emplace_back(RequestMoved{std::move(moving.request), std::move(moving.live), moving.family,
                                    moving.was_refused, moving.is_rebalanced});
  for (const int sample : moving.wishes.cancelled_samples) events_.emplace_back(SampleCancelled{id, sample});
  if (moving.wishes.cancelled.has_value()) events_.emplace_back(RequestCancelled{id, *moving.wishes.cancelled});
  changed_.NotifyOne();
}

MovingRequest::Wishes LoopInbox::Release(RequestId request) {
  MovingRequest::Wishes wishes;
  const auto take = [&](const LoopEvent& event) {
    if (const auto* cancelled = std::get_if<RequestCancelled>(&event)) {
      if (cancelled->request != request) return false;
      wishes.cancelled = cancelled->reason;
      return true;
    }
    const auto* cancelled = std::get_if<SampleCancelled>(&event);
    if (cancelled == nullptr || cancelled->request != request) return false;
    wishes.cancelled_samples.push_back(cancelled->sample_index);
    return true;
  };
  // These stay where they are. The loop does nothing when it reaches them, because it does not know the request any
  // more. A sample that the loop has ended already is ended once more, which does nothing either.
  if (taken_ != nullptr) std::for_each(taken_->begin(), taken_->end(), take);
  const MutexLock lock(&mutex_);
  wishes.is_cancellable = cancellable_.erase(request) > 0;
  if (prefix_index_ != nullptr) prefix_index_->Forget(request);
  std::erase_if(events_, take);
  return wishes;
}

std::optional<RequestSubmitted> LoopInbox::Cancel(RequestId request, FinishReason reason) {
  const MutexLock lock(&mutex_);
  if (cancellable_.erase(request) == 0) return std::nullopt;
  std::optional<RequestSubmitted> withdrawn = Withdraw(request);
  if (!withdrawn.has_value()) events_.emplace_back(RequestCancelled{request, reason});
  changed_.NotifyOne();
  return withdrawn;
}

std::optional<RequestSubmitted> LoopInbox::Withdraw(RequestId request) {
  const auto it = submitted_.find(request);
  if (it == submitted_.end()) return std::nullopt;
  RequestSubmitted withdrawn = std::move(std::get<RequestSubmitted>(*it->second.event));
  events_.erase(it->second.event);
  added_.Add(it->second.added, -1);
  submitted_.erase(it);
  if (const auto tenant = tenants_.find(withdrawn.request.tenant); --tenant->second == 0) tenants_.erase(tenant);
  if (prefix_index_ != nullptr) prefix_index_->Forget(request);
  has_withdrawn_ = true;
  return withdrawn;
}

void LoopInbox::CancelSample(RequestId request, int sample_index) {
  const MutexLock lock(&mutex_);
  if (!cancellable_.contains(request)) return;
  events_.emplace_back(SampleCancelled{request, sample_index});
  changed_.NotifyOne();
}

absl::Status LoopInbox::Ask(LoopQuestion question) {
  const MutexLock lock(&mutex_);
  if (is_stopped_) return ShuttingDownError();
  if (static_cast<int>(questions_.size()) >= options_->max_questions) {
    return absl::ResourceExhaustedError(absl::StrCat("worker ", options_->address, " has ", questions_.size(),
                                                     " questions to answer, the limit is ", options_->max_questions));
  }
  questions_.push_back(std::move(question));
  changed_.NotifyOne();
  return absl::OkStatus();
}

void LoopInbox::SetDrainedByOperator(bool is_drained, bool migrates) {
  const MutexLock lock(&mutex_);
  if (std::exchange(migrates_, migrates) != migrates) {
    events_.emplace_back(MigrationChanged{migrates});
    changed_.NotifyOne();
  }
  is_drained_by_operator_ = is_drained;
  auto status = std::make_shared<WorkerStatus>(*status_);
  status->is_draining = is_drained || is_drained_by_worker_;
  status_ = std::move(status);
}

std::shared_ptr<const WorkerStatus> LoopInbox::status() const {
  const MutexLock lock(&mutex_);
  return status_;
}

WorkerLoad LoopInbox::load() const {
  const MutexLock lock(&mutex_);
  WorkerLoad load = load_;
  load.is_drained_by_operator = is_drained_by_operator_;
  added_.AddTo(&load);
  load.forecast.num_requests = load.num_requests;
  return load;
}

WorkerLoad LoopInbox::load(const Request& request, PromptHashes* hashes) const {
  WorkerLoad load = this->load();
  if (load.waiting_tenant.has_value() && *load.waiting_tenant != request.tenant) load.forecast.waiting_tokens = 0;
  load.forecast.is_overloaded = load.overloaded_queues != nullptr && load.overloaded_queues->contains(QueueNameOf(
                                                                         options_->scheduler.policy, request.tenant));
  const std::shared_ptr<PrefixIndex> index = IndexFor(request);
  if (index != nullptr) load.num_cached_tokens = index->NumTokens(hashes);
  return load;
}

std::shared_ptr<PrefixIndex> LoopInbox::IndexFor(const Request& request) const {
  if (request.bypass_prefix_cache) return nullptr;
  const MutexLock lock(&mutex_);
  return prefix_index_;
}

void LoopInbox::OnDescribed(uint64_t epoch, WorkerDescription description) {
  Post(WorkerDescribed{epoch, std::move(description)});
}

void LoopInbox::AddRestored(RequestId request) {
  const MutexLock lock(&mutex_);
  cancellable_.insert(request);
}

void LoopInbox::OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) {
  Post(SessionOpened{epoch, std::move(inventory)});
}

void LoopInbox::OnResult(uint64_t epoch, StepResult result, int64_t duration_us) {
  Post(PlanAnswered{epoch, std::move(result), duration_us});
}

void LoopInbox::OnDraining(uint64_t epoch) {
  Post(WorkerDraining{epoch});
}

void LoopInbox::OnProbed(uint64_t epoch) {
  Post(WorkerProbed{epoch});
}

void LoopInbox::OnLost(uint64_t epoch, absl::Status reason) {
  Post(WorkerLost{epoch, std::move(reason)});
}

void LoopInbox::Post(LoopEvent event) {
  const MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
  changed_.NotifyOne();
}

void LoopInbox::Stop() {
  const MutexLock lock(&mutex_);
  is_stopped_ = true;
  changed_.NotifyOne();
}

bool LoopInbox::Wait(int64_t wake_us) {
  const MutexLock lock(&mutex_);
  while (!is_stopped_ && events_.empty() && questions_.empty() && !has_withdrawn_) {
    if (wake_us == kNever) {
      changed_.Wait(&mutex_);
      continue;
    }
    const int64_t left_us = wake_us - clock_->NowMicros();
    if (left_us <= 0 || !changed_.WaitFor(&mutex_, std::chrono::microseconds(left_us))) break;
  }
  return !is_stopped_;
}

void LoopInbox::Take(std::vector<LoopEvent>* events, std::vector<LoopQuestion>* questions) {
  taken_ = events;
  std::list<LoopEvent> taken;
  {
    const MutexLock lock(&mutex_);
    taken.swap(events_);
    questions->swap(questions_);
    submitted_.clear();
    tenants_.clear();
    added_.AddTo(&load_);
    added_ = {};
  }
  events->assign(std::make_move_iterator(taken.begin()), std::make_move_iterator(taken.end()));
}

void LoopInbox::SetPrefixIndex(std::shared_ptr<PrefixIndex> index) {
  const MutexLock lock(&mutex_);
  prefix_index_ = std::move(index);
}

bool LoopInbox::Publish(const WorkerLoad& load, bool is_drained_by_worker, const WorkerStatus& status,
                        const std::vector<RequestId>& ended) {
  // Statuses are large: both are allocated and freed without the lock.
  auto made = std::make_shared<WorkerStatus>(status);
  std::shared_ptr<const WorkerStatus> replaced;
  const MutexLock lock(&mutex_);
  const auto num_others = [](const WorkerLoad& of) { return of.num_requests - of.num_restorable; };
  const bool has_changed = load_.is_ready != load.is_ready || (load.num_requests == 0 && load_.num_requests != 0) ||
                           (num_others(load) == 0 && num_others(load_) != 0) || std::exchange(has_withdrawn_, false);
  load_ = load;
  is_drained_by_worker_ = is_drained_by_worker;
  made->is_draining = is_drained_by_operator_ || is_drained_by_worker;
  replaced = std::exchange(status_, std::move(made));
  for (const RequestId request : ended) {
    cancellable_.erase(request);
    if (prefix_index_ != nullptr) prefix_index_->Forget(request);
  }
  return has_changed;
}

}  // namespace quire
