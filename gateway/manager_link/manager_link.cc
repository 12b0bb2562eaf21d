// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/manager_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "client/library/client.h"
#include "client/policy/call_status.h"
#include "gateway/manager_link/message_limit.h"
#include "google/rpc/error_details.pb.h"

namespace quire {
namespace {

constexpr std::chrono::milliseconds kModelLife(1000);
// An answer is renewed at this age, until nobody has asked for this time.
constexpr std::chrono::milliseconds kModelRenewal(750);
constexpr std::chrono::seconds kModelUse(5);
// Calls that were cancelled end within this time, unless gRPC has no threads.
constexpr std::chrono::seconds kMaxEndTime(5);

// Limit of a call of Embed whose client gives no time.
constexpr std::chrono::hours kMaxEmbedTime(24);

// Bounds of the pause between two attempts of a call that no manager takes, and the part of it for each such call.
constexpr std::chrono::milliseconds kShortestPause(100);
constexpr std::chrono::milliseconds kLongestPause(1000);
constexpr std::chrono::milliseconds kPausePerCall(2);

// Returns whether no manager takes a call: none can be reached or leads, or the one that leads has just started.
bool IsOfNoManager(const google::rpc::Status& status) {
  return status.code() == grpc::StatusCode::UNAVAILABLE && (IsOfNoLeader(status) || IsRestoring(status));
}

google::rpc::Status StatusOf(grpc::StatusCode code, std::string message) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(std::move(message));
  return status;
}

// Returns the status of a request that may be sent again in a second. Its details show that gRPC has not made it.
google::rpc::Status RefusalOf(grpc::StatusCode code, std::string message) {
  google::rpc::Status status = StatusOf(code, std::move(message));
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  status.add_details()->PackFrom(retry);
  return status;
}

// Explains the status of a call with a time limit, of which gRPC says only that some deadline has passed.
google::rpc::Status WithReason(google::rpc::Status status, std::string message, const char* reason) {
  if (status.code() != grpc::StatusCode::DEADLINE_EXCEEDED || !status.details().empty()) return status;
  status = StatusOf(grpc::StatusCode::DEADLINE_EXCEEDED, std::move(message));
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  status.add_details()->PackFrom(info);
  return status;
}

// The same for a call with a time limit of the gateway.
google::rpc::Status WithTimeout(google::rpc::Status status, std::chrono::milliseconds timeout) {
  return WithReason(std::move(status),
                    absl::StrCat("the manager has not answered the gateway within ",
                                 absl::FormatDuration(absl::FromChrono(timeout)), " (--call-timeout)"),
                    "CALL_TIMEOUT");
}

// The same for a call that ends with the time of its client, as the manager says it of a request.
google::rpc::Status WithDeadline(google::rpc::Status status) {
  return WithReason(std::move(status), "the call's deadline passed before the manager had answered",
                    "DEADLINE_EXCEEDED");
}

}  // namespace

struct ManagerLink::Gate {
  explicit Gate(Executor function) : executor(std::move(function)) {}

  void Post(std::function<void()> function) QUIRE_EXCLUDES(mutex) {
    const MutexLock lock(&mutex);
    if (executor != nullptr) return executor(std::move(function));
    dropped.push_back(std::move(function));
  }
  // A call begins. It is over for gRPC when the result is destroyed.
  static std::shared_ptr<void> Begin(const std::shared_ptr<Gate>& gate) {
    const MutexLock lock(&gate->mutex);
    ++gate->num_calls;
    return {gate.get(), [gate](void*) {
              const MutexLock lock(&gate->mutex);
              --gate->num_calls;
              gate->changed.NotifyAll();
            }};
  }

  Mutex mutex;
  CondVar changed;
  Executor executor QUIRE_GUARDED_BY(mutex);  // Null when it must not be called any more.
  int num_calls QUIRE_GUARDED_BY(mutex) = 0;
  // What came after that. It holds calls, and with the last of them a channel ends, which no thread of gRPC may do.
  std::vector<std::function<void()>> dropped QUIRE_GUARDED_BY(mutex);
};

bool ManagerLink::Caller::is_idle() const {
  return std::all_of(calls.begin(), calls.end(), [](const OpenCall& open) { return open.call->num_requests() == 0; });
}

ManagerLink::ManagerLink(const std::vector<std::shared_ptr<grpc::Channel>>& channels, Executor executor,
                         DelayedExecutor delayed_executor, size_t max_callers, std::chrono::milliseconds timeout,
                         size_t max_waiting_bytes)
    : gate_(std::make_shared<Gate>(std::move(executor))),
      executor_([gate = gate_](std::function<void()> function) { gate->Post(std::move(function)); }),
      delayed_executor_(std::move(delayed_executor)),
      max_callers_(max_callers),
      timeout_(timeout),
      max_waiting_bytes_(max_waiting_bytes),
      watch_(channels.size(), delayed_executor_, WatchHooks()) {
  for (const std::shared_ptr<grpc::Channel>& channel : channels) {
    managers_.push_back({v1::InferenceService::NewStub(channel), grpc::health::v1::Health::NewStub(channel)});
  }
}

ManagerLink::~ManagerLink() {
  {
    const MutexLock lock(&gate_->mutex);
    gate_->executor = nullptr;
  }
  for (const auto& [authorization, caller] : callers_) {
    for (const OpenCall& open : caller.calls) open.call->Abandon();
  }
  for (const auto& weak : contexts_) {
    if (const auto context = weak.lock()) context->TryCancel();
  }
  std::vector<std::function<void()>> dropped;
  const auto end = std::chrono::steady_clock::now() + kMaxEndTime;
  const MutexLock lock(&gate_->mutex);
  while (gate_->num_calls > 0 && gate_->changed.WaitUntil(&gate_->mutex, end)) {
  }
  std::swap(dropped, gate_->dropped);
}

std::shared_ptr<void> ManagerLink::Hold(size_t num_bytes) const {
  if (num_bytes > max_waiting_bytes_ || *waiting_bytes_ > max_waiting_bytes_ - num_bytes) return nullptr;
  *waiting_bytes_ += num_bytes;
  return {waiting_bytes_.get(), [counter = waiting_bytes_, num_bytes](void*) { *counter -= num_bytes; }};
}

google::rpc::Status ManagerLink::BusyError() const {
  return RefusalOf(grpc::StatusCode::UNAVAILABLE,
                   absl::StrCat("the requests that wait for the manager have ", *waiting_bytes_, " bytes, at most ",
                                max_waiting_bytes_, " are allowed with this one; try again"));
}

bool ManagerLink::WaitsForManager(const google::rpc::Status& status, Attempts* attempts, std::function<void()> again) {
  const bool is_early = attempts->waits_for_worker && HasReason(status, "NO_WORKER");
  if ((!IsOfNoManager(status) && !is_early) || attempts->may_wait == nullptr || !attempts->may_wait()) return false;
  attempts->has_waited = true;
  ++num_pauses_;
  const auto pause = kPausePerCall * static_cast<int64_t>(num_pauses_);
  delayed_executor_(std::clamp<std::chrono::milliseconds>(pause, kShortestPause, kLongestPause),
                    [this, again = std::move(again)] {
                      --num_pauses_;
                      again();
                    });
  return true;
}

bool ManagerLink::AsksAgain(size_t manager, google::rpc::Status* status, Attempts* attempts,
                            std::function<void()> again) {
  if (status->code() == 0) return false;
  const CallAction action = attempts->policy.After(*status, PolicyTime(std::chrono::steady_clock::now()));
  if (action.leaves && managers_.size() > 1 && current_ == manager) {
    current_ = (manager + 1) % managers_.size();
    for (auto& [authorization, caller] : callers_) caller.model_until = {};  // The next one may have another model.
  }
  const google::rpc::Status end = std::exchange(*status, action.error);
  if (action.kind == CallAction::Kind::kStop) return WaitsForManager(end, attempts, std::move(again));
  if (action.delay == absl::ZeroDuration()) {
    executor_(std::move(again));
  } else {
    delayed_executor_(absl::ToChronoMilliseconds(action.delay), std::move(again));
  }
  return true;
}

LeaderWatch::Hooks ManagerLink::WatchHooks() {
  return {.is_awaited = [this](size_t manager) { return IsAwaited(manager); },
          .ask = [this](size_t manager, auto done) { AskHealth(manager, std::move(done)); },
          .give_up = [this](size_t silent, size_t leader) { GiveUp(silent, leader); }};
}

bool ManagerLink::IsAwaited(size_t manager) const {
  const auto is_of_manager = [manager](const auto& call) { return call->manager == manager; };
  if (std::any_of(unary_calls_.begin(), unary_calls_.end(), is_of_manager)) return true;
  return std::any_of(callers_.begin(), callers_.end(), [manager](const auto& entry) {
    const std::vector<OpenCall>& calls = entry.second.calls;
    return std::any_of(calls.begin(), calls.end(), [manager](const OpenCall& open) {
      return open.manager == manager && open.call->num_requests() > 0;
    });
  });
}

void ManagerLink::AskHealth(size_t manager, std::function<void(LeaderWatch::Answer answer)> done) {
  using Response = grpc::health::v1::HealthCheckResponse;
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(v1::InferenceService::service_full_name());
  auto* const stub = managers_[manager].health.get();
  CallOnce<grpc::health::v1::HealthCheckRequest, Response>(
      "", std::make_shared<const grpc::health::v1::HealthCheckRequest>(request),
      std::chrono::steady_clock::now() + LeaderWatch::kPatience,
      [done = std::move(done)](const google::rpc::Status& status, const Response& response) {
        done({.has_come = !IsOfNoLeader(status) || !status.details().empty(),
              .is_serving = status.code() == 0 && response.status() == Response::SERVING});
      },
      [stub](auto... arguments) { stub->async()->Check(std::move(arguments)...); });
}

// The ends of the calls come later, on this thread.
void ManagerLink::GiveUp(size_t silent, size_t leader) {
  if (current_ == silent) current_ = leader;
  for (auto& [authorization, caller] : callers_) {
    caller.model_until = {};  // The leader may have another model.
    for (const OpenCall& open : caller.calls) {
      if (open.manager == silent) open.call->GiveUp();
    }
  }
  for (const std::shared_ptr<UnaryCall>& call : unary_calls_) {
    if (call->manager != silent) continue;
    call->is_given_up = true;
    call->context->TryCancel();
  }
}

ManagerLink::Caller* ManagerLink::CallerOf(const std::string& authorization) {
  const auto found = callers_.find(authorization);
  if (found != callers_.end()) return &found->second;
  if (callers_.size() >= max_callers_) {
    const auto idle =
        std::find_if(callers_.begin(), callers_.end(), [](const auto& entry) { return entry.second.is_idle(); });
    if (idle == callers_.end()) return nullptr;
    for (const OpenCall& open : idle->second.calls) open.call->End();
    callers_.erase(idle);
  }
  return &callers_[authorization];
}

BatchCall* ManagerLink::CallFor(const std::string& authorization, Caller* caller, bool is_large) {
  for (const OpenCall& open : caller->calls) {
    const bool has_room = !open.call->is_over() && open.call->num_counted_requests() < max_requests_per_call_;
    if (open.manager == current_ && open.is_for_large == is_large && has_room) return open.call.get();
  }
  const auto ended = [this, authorization](BatchCall* call) {
    const auto found = callers_.find(authorization);
    if (found == callers_.end()) return;
    std::erase_if(found->second.calls, [call](const OpenCall& other) { return other.call.get() == call; });
    found->second.model_until = {};  // The next manager may have another model.
    if (found->second.calls.empty()) callers_.erase(found);
  };
  caller->calls.push_back(
      {BatchCall::Start(managers_[current_].inference.get(), authorization, executor_, ended, Gate::Begin(gate_)),
       current_, is_large});
  return caller->calls.back().call.get();
}

ManagerLink::Ticket ManagerLink::Start(const std::string& authorization, v1::GenerateRequest request,
                                       EntryHandler handler, std::shared_ptr<void> hold,
                                       std::optional<std::chrono::milliseconds> timeout, MayWait may_wait,
                                       const std::string& traceparent) {
  v1::GenerateBatchRequest message;
  message.set_traceparent(traceparent);
  *message.mutable_start() = std::move(request);
  return Send(authorization, std::move(message), std::move(handler), std::move(hold), timeout, std::move(may_wait));
}

ManagerLink::Ticket ManagerLink::Resume(const std::string& authorization, const v1::ResumeRequest& request,
                                        EntryHandler handler) {
  v1::GenerateBatchRequest message;
  *message.mutable_resume() = request;
  return Send(authorization, std::move(message), std::move(handler), /*hold=*/nullptr, /*timeout=*/std::nullopt,
              /*may_wait=*/nullptr);
}

ManagerLink::Ticket ManagerLink::Send(const std::string& authorization, v1::GenerateBatchRequest message,
                                      EntryHandler handler, std::shared_ptr<void> hold,
                                      std::optional<std::chrono::milliseconds> timeout, MayWait may_wait) {
  std::optional<std::chrono::steady_clock::time_point> end;
  if (timeout.has_value()) end = std::chrono::steady_clock::now() + *timeout;
  std::shared_ptr<Sending> sending(new Sending{
      .authorization = authorization,
      .handler = std::move(handler),
      .attempts = {CallPolicy({.num_managers = managers_.size(), .resume_time = absl::FromChrono(timeout_)}),
                   std::move(may_wait)},
      .hold = std::move(hold),
      .end = end});
  SendOnce(std::move(message), sending);
  return {std::move(sending)};
}

void ManagerLink::SendOnce(v1::GenerateBatchRequest message, const std::shared_ptr<Sending>& sending) {
  message.set_tag(next_tag_++);
  if (sending->end.has_value()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*sending->end - std::chrono::steady_clock::now());
    message.set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
  }
  google::rpc::Status refusal = CheckMessageBytes(message, max_message_bytes_);
  Caller* const caller = refusal.code() == 0 ? CallerOf(sending->authorization) : nullptr;
  if (caller == nullptr) {
    if (refusal.code() == 0) {
      refusal =
          RefusalOf(grpc::StatusCode::RESOURCE_EXHAUSTED,
                    absl::StrCat("requests with ", max_callers_, " bearer tokens are running, which is the limit"));
    }
    v1::GenerateBatchEntry entry;
    *entry.mutable_end() = refusal;
    executor_([this, manager = current_, sending, entry] { OnEntry(manager, sending, entry); });
    return;
  }
  const bool is_large = message.ByteSizeLong() > max_message_bytes_ / kLargePart;
  BatchCall* const call = CallFor(sending->authorization, caller, is_large);
  sending->call = call->weak_from_this();
  sending->tag = message.tag();
  sending->message = std::make_shared<const v1::GenerateBatchRequest>(std::move(message));
  watch_.OnSent();
  call->Send(sending->message, [this, manager = current_, sending](const v1::GenerateBatchEntry& entry) {
    OnEntry(manager, sending, entry);
  });
}

void ManagerLink::OnEntry(size_t manager, const std::shared_ptr<Sending>& sending,
                          const v1::GenerateBatchEntry& entry) {
  if (!entry.has_end() || entry.end().code() == 0) watch_.OnHeard(manager);
  if (sending->handler == nullptr) return;  // It was cancelled.
  v1::GenerateBatchEntry end;
  if (entry.has_end()) {
    end = entry;
    const auto again = [this, sending] {
      if (sending->handler != nullptr) SendOnce(*sending->message, sending);
    };
    if (sending->message != nullptr && AsksAgain(manager, end.mutable_end(), &sending->attempts, again)) return;
  }
  sending->message = nullptr;
  sending->hold = nullptr;
  const EntryHandler handler = entry.has_end() ? std::exchange(sending->handler, nullptr) : sending->handler;
  handler(entry.has_end() ? end : entry);
}

void ManagerLink::Cancel(const Ticket& ticket) {
  if (ticket.sending == nullptr) return;
  ticket.sending->handler = nullptr;
  ticket.sending->message = nullptr;
  ticket.sending->hold = nullptr;
  const std::shared_ptr<BatchCall> call = ticket.sending->call.lock();
  if (call != nullptr) call->Cancel(ticket.sending->tag);
}

template <typename Request, typename Response, typename Call>
std::shared_ptr<grpc::ClientContext> ManagerLink::CallOnce(const std::string& authorization,
                                                           std::shared_ptr<const Request> request,
                                                           std::chrono::steady_clock::time_point end,
                                                           Handler<Response> handler, Call call,
                                                           const std::string& traceparent) {
  struct State {
    grpc::ClientContext context;
    std::shared_ptr<const Request> request;
    Response response;
    std::shared_ptr<State> self;  // Until gRPC has called back.
    std::shared_ptr<void> call;   // See Gate::Begin.
  };
  auto state = std::make_shared<State>();
  state->self = state;
  state->call = Gate::Begin(gate_);
  state->request = std::move(request);
  state->context.set_deadline(std::chrono::system_clock::now() + (end - std::chrono::steady_clock::now()));
  if (!authorization.empty()) state->context.AddMetadata("authorization", authorization);
  if (!traceparent.empty()) state->context.AddMetadata("traceparent", traceparent);
  call(&state->context, state->request.get(), &state->response,
       [executor = executor_, pending = state.get(), handler = std::move(handler)](const grpc::Status& status) {
         const std::shared_ptr<void> call = std::move(pending->call);
         executor(
             [state = std::move(pending->self), handler, end = RpcStatusOf(status)] { handler(end, state->response); });
       });
  std::shared_ptr<grpc::ClientContext> context(state, &state->context);
  std::erase_if(contexts_, [](const auto& weak) { return weak.expired(); });
  contexts_.push_back(context);
  return context;
}

std::shared_ptr<ManagerLink::Search> ManagerLink::NewSearch(size_t num_bytes, MayWait may_wait) const {
  const auto end = std::chrono::steady_clock::now() + timeout_;
  Attempts attempts{.policy = CallPolicy({.num_managers = managers_.size(), .deadline = PolicyTime(end)}),
                    .may_wait = std::move(may_wait),
                    .waits_for_worker = true};
  return std::shared_ptr<Search>(new Search{.end = end, .attempts = std::move(attempts), .hold = Hold(num_bytes)});
}

template <typename Request, typename Response, typename Call>
void ManagerLink::Infer(const std::string& authorization, std::shared_ptr<const Request> request,
                        Handler<Response> handler, Call call, MayWait may_wait, std::shared_ptr<Search> search) {
  const google::rpc::Status refusal = CheckMessageBytes(*request, max_message_bytes_);
  if (refusal.code() != 0) return executor_([handler, refusal] { handler(refusal, Response()); });
  if (search == nullptr) search = NewSearch(request->ByteSizeLong(), std::move(may_wait));
  if (search->hold == nullptr) return executor_([handler, busy = BusyError()] { handler(busy, Response()); });
  const auto again = [this, authorization, request, handler, call, search] {
    if (search->attempts.has_waited) search->end = std::chrono::steady_clock::now() + timeout_;
    Infer<Request, Response>(authorization, request, handler, call, nullptr, search);
  };
  const auto unary = std::make_shared<UnaryCall>(UnaryCall{.manager = current_});
  const auto answer = [this, unary, handler = std::move(handler), search, again](const google::rpc::Status& status,
                                                                                 const Response& response) {
    unary_calls_.erase(unary);
    google::rpc::Status end = unary->is_given_up ? SilentError() : status;
    if (end.code() == 0) watch_.OnHeard(unary->manager);
    if (!search->is_cancelled && AsksAgain(unary->manager, &end, &search->attempts, again)) return;
    handler(search->call_end.has_value() ? WithDeadline(std::move(end)) : WithTimeout(std::move(end), timeout_),
            response);
  };
  unary_calls_.insert(unary);
  search->call = unary;
  watch_.OnSent();
  unary->context = CallOnce<Request, Response>(
      authorization, request, search->call_end.value_or(search->end), answer,
      [call, stub = managers_[current_].inference.get()](auto... arguments) { call(stub, std::move(arguments)...); },
      search->traceparent);
}

void ManagerLink::GetModel(const std::string& authorization, Handler<v1::GetModelResponse> handler, MayWait may_wait) {
  const auto found = callers_.find(authorization);
  if (found == callers_.end()) return AskModel(authorization, std::move(handler), std::move(may_wait));
  Caller& caller = found->second;
  const auto now = std::chrono::steady_clock::now();
  caller.model_use = now;
  if (now >= caller.model_until) return AskModel(authorization, std::move(handler), std::move(may_wait));
  handler(google::rpc::Status(), caller.model);
}

void ManagerLink::AskModel(const std::string& authorization, Handler<v1::GetModelResponse> handler, MayWait may_wait) {
  Infer<v1::GetModelRequest, v1::GetModelResponse>(
      authorization, std::make_shared<const v1::GetModelRequest>(),
      [this, authorization, handler = std::move(handler)](const google::rpc::Status& status,
                                                          const v1::GetModelResponse& model) {
        if (model.max_message_bytes() > 0) max_message_bytes_ = model.max_message_bytes();
        if (status.code() == 0) {
          const size_t limit = model.max_batch_requests();  // 0: the manager is older and does not say it.
          max_requests_per_call_ = limit > 0 ? std::min(limit, kMaxRequestsPerCall) : kMaxRequestsPerCall;
        }
        const auto caller = callers_.find(authorization);
        if (status.code() == 0 && caller != callers_.end()) {
          caller->second.model = model;
          caller->second.model_until = std::chrono::steady_clock::now() + kModelLife;
          PlanModelRenewal(authorization, &caller->second);
        }
        handler(status, model);
      },
      [](v1::InferenceService::Stub* stub, auto... arguments) { stub->async()->GetModel(std::move(arguments)...); },
      std::move(may_wait));
}

void ManagerLink::PlanModelRenewal(const std::string& authorization, Caller* caller) {
  const auto now = std::chrono::steady_clock::now();
  if (now >= caller->model_use + kModelUse) return;
  caller->model_renewal = now + kModelRenewal;
  delayed_executor_(kModelRenewal, [this, authorization, planned = caller->model_renewal] {
    const auto found = callers_.find(authorization);
    if (found == callers_.end() || found->second.model_renewal != planned) return;  // Another answer has come since.
    AskModel(
        authorization, [](const google::rpc::Status&, const v1::GetModelResponse&) {}, /*may_wait=*/nullptr);
  });
}

void ManagerLink::RenderChat(const std::string& authorization, const v1::Chat& chat,
                             Handler<v1::RenderChatResponse> handler, MayWait may_wait) {
  auto request = std::make_shared<v1::RenderChatRequest>();
  *request->mutable_chat() = chat;
  Infer<v1::RenderChatRequest, v1::RenderChatResponse>(
      authorization, std::move(request), std::move(handler),
      [](v1::InferenceService::Stub* stub, auto... arguments) { stub->async()->RenderChat(std::move(arguments)...); },
      std::move(may_wait));
}

void ManagerLink::Tokenize(const std::string& authorization, std::shared_ptr<const v1::TokenizeRequest> request,
                           Handler<v1::TokenizeResponse> handler, MayWait may_wait) {
  Infer<v1::TokenizeRequest, v1::TokenizeResponse>(
      authorization, std::move(request), std::move(handler),
      [](v1::InferenceService::Stub* stub, auto... arguments) { stub->async()->Tokenize(std::move(arguments)...); },
      std::move(may_wait));
}

void ManagerLink::Detokenize(const std::string& authorization, std::shared_ptr<const v1::DetokenizeRequest> request,
                             Handler<v1::DetokenizeResponse> handler, MayWait may_wait) {
  Infer<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      authorization, std::move(request), std::move(handler),
      [](v1::InferenceService::Stub* stub, auto... arguments) { stub->async()->Detokenize(std::move(arguments)...); },
      std::move(may_wait));
}

ManagerLink::EmbedTicket ManagerLink::Embed(const std::string& authorization,
                                            std::shared_ptr<const v1::EmbedRequest> request,
                                            std::chrono::steady_clock::time_point end,
                                            Handler<v1::EmbedResponse> handler, MayWait may_wait,
                                            const std::string& traceparent) {
  const std::shared_ptr<Search> search = NewSearch(request->ByteSizeLong(), std::move(may_wait));
  search->traceparent = traceparent;
  search->call_end = std::min(end, std::chrono::steady_clock::now() + kMaxEmbedTime);
  Infer<v1::EmbedRequest, v1::EmbedResponse>(
      authorization, std::move(request), std::move(handler),
      [](v1::InferenceService::Stub* stub, auto... arguments) { stub->async()->Embed(std::move(arguments)...); },
      nullptr, search);
  return {search};
}

void ManagerLink::Cancel(const EmbedTicket& ticket) {
  if (ticket.search == nullptr) return;
  ticket.search->is_cancelled = true;
  if (const std::shared_ptr<UnaryCall> call = ticket.search->call.lock()) call->context->TryCancel();
}

void ManagerLink::CheckHealth(Handler<grpc::health::v1::HealthCheckResponse> handler) {
  CheckHealthFrom(current_, /*num_asked=*/0, std::move(handler));
}

void ManagerLink::CheckHealthFrom(size_t first, size_t num_asked,
                                  Handler<grpc::health::v1::HealthCheckResponse> handler) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(v1::InferenceService::service_full_name());
  const auto answer = [this, first, num_asked, handler = std::move(handler)](
                          const google::rpc::Status& status, const grpc::health::v1::HealthCheckResponse& response) {
    const bool is_serving = status.code() == 0 && response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
    if (is_serving || num_asked + 1 == managers_.size()) {
      return handler(WithTimeout(status, timeout_), response);
    }
    CheckHealthFrom(first, num_asked + 1, handler);
  };
  auto* const stub = managers_[(first + num_asked) % managers_.size()].health.get();
  CallOnce<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>(
      "", std::make_shared<const grpc::health::v1::HealthCheckRequest>(request),
      std::chrono::steady_clock::now() + timeout_, answer,
      [stub](auto... arguments) { stub->async()->Check(std::move(arguments)...); });
}

}  // namespace quire
