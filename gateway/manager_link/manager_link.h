// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_
#define QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/policy/call_policy.h"
#include "gateway/manager_link/batch_call.h"
#include "gateway/manager_link/leader_watch.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace quire {

// The time of a call policy.
inline absl::Time PolicyTime(std::chrono::steady_clock::time_point time) {
  return absl::UnixEpoch() + absl::FromChrono(time.time_since_epoch());
}

// The connection of the gateway to its manager, or to several ones of which one leads. There is one channel for each,
// and on it calls of GenerateBatch that stay open. Each bearer token has calls of its own, because the manager takes
// the tenant of a request from the token of its call. When a manager stands by, stops or cannot be reached, a call or
// a request of which it has sent nothing goes to the next one, for `timeout`, or until none can be reached. It is sent
// again to a manager that has just started and still restores its requests. When the one that leads is silent while
// another one has begun to lead, everything goes there (see LeaderWatch). A message that is larger than the manager
// takes is not sent, because it would end the requests of others; its request ends with INVALID_ARGUMENT. A call or a
// request that no manager takes waits as long as its caller lets it (MayWait). All functions and handlers run on the
// owner's thread.
class ManagerLink {
 public:
  // Returns whether a call or a request that no manager takes may wait for one any longer. It is asked after each
  // attempt. Null: it does not wait.
  using MayWait = std::function<bool()>;

 private:
  // Decides whether a call is made again.
  struct Attempts {
    CallPolicy policy;
    MayWait may_wait;
    bool waits_for_worker = false;  // Also when the manager that leads has no worker yet.
    bool has_waited = false;        // For a manager.
  };
  // A request that was sent.
  struct Sending {
    const std::string authorization;
    EntryHandler handler;  // Null after the end. It may own the ticket, so the last entry and Cancel free it.
    Attempts attempts;
    std::shared_ptr<void> hold;
    const std::optional<std::chrono::steady_clock::time_point> end;  // Of the time that the client gives it.
    std::weak_ptr<BatchCall> call = {};
    uint64_t tag = 0;
    // Kept until the first entry, to send it again.
    std::shared_ptr<const v1::GenerateBatchRequest> message = nullptr;
  };

  // A call with one request and one response that has no answer.
  struct UnaryCall {
    size_t manager;
    std::shared_ptr<grpc::ClientContext> context = nullptr;
    bool is_given_up = false;
  };
  // What repeats a unary call.
  struct Search {
    std::chrono::steady_clock::time_point end;  // Of the attempts without a pause for want of a manager.
    Attempts attempts;
    std::shared_ptr<void> hold;  // Keeps the bytes of the request counted.
    // Of a call that computes, which may take longer than the attempts.
    std::optional<std::chrono::steady_clock::time_point> call_end = std::nullopt;
    std::string traceparent = "";        // Metadata of the call, or empty.
    std::weak_ptr<UnaryCall> call = {};  // The last one.
    bool is_cancelled = false;
  };

 public:
  // A request that was started, for Cancel.
  struct Ticket {
    std::shared_ptr<Sending> sending;
  };
  template <typename Response>
  using Handler = std::function<void(const google::rpc::Status& status, const Response& response)>;

  // A request is large when it has more than this part of what the manager takes. Large ones have calls of their own.
  static constexpr size_t kLargePart = 16;
  // Largest number of requests of a GenerateBatch call, if the manager takes no fewer; then another call is opened.
  static constexpr size_t kMaxRequestsPerCall = 512;

  // `max_callers` is the number of bearer tokens that have calls at the same time. An idle one gives way to a new one;
  // without an idle one, requests of new tokens are refused with RESOURCE_EXHAUSTED. Unary calls end after `timeout`.
  // `max_waiting_bytes` is the memory for requests that wait for the manager, see Hold.
  // When it is destroyed, the executors must not run functions any more, and they are not called any more after that.
  // Calls that have no answer are cancelled. REQUIRES: there is a channel.
  ManagerLink(const std::vector<std::shared_ptr<grpc::Channel>>& channels, Executor executor,
              DelayedExecutor delayed_executor, size_t max_callers, std::chrono::milliseconds timeout,
              size_t max_waiting_bytes = size_t{256} << 20);
  ~ManagerLink();

  // Counts the bytes of a request until the result is destroyed. Returns null when all requests together would have
  // more than max_waiting_bytes; such a request is to be refused with BusyError. Unary calls do this by themselves.
  std::shared_ptr<void> Hold(size_t num_bytes) const;
  google::rpc::Status BusyError() const;

  // `authorization` is the metadata of the call, or empty. It is printable ASCII. `hold` is kept as long as the
  // request, until the manager has sent something for it. The manager ends the request after `timeout`, if it is set.
  // `traceparent` is the span to which the request belongs, or empty.
  Ticket Start(const std::string& authorization, v1::GenerateRequest request, EntryHandler handler,
               std::shared_ptr<void> hold = nullptr, std::optional<std::chrono::milliseconds> timeout = std::nullopt,
               MayWait may_wait = nullptr, const std::string& traceparent = "");
  // Resumes the stream of a request.
  Ticket Resume(const std::string& authorization, const v1::ResumeRequest& request, EntryHandler handler);
  // The request ends, and its handler is not called any more.
  void Cancel(const Ticket& ticket);

  // Describes the model. When the caller has sent requests before, an answer is kept for a second. It is renewed before
  // that, until there was no call for a few seconds, so that calls need not wait for the manager.
  void GetModel(const std::string& authorization, Handler<v1::GetModelResponse> handler, MayWait may_wait = nullptr);

  // Shows the prompt that a conversation becomes.
  void RenderChat(const std::string& authorization, const v1::Chat& chat, Handler<v1::RenderChatResponse> handler,
                  MayWait may_wait = nullptr);

  void Tokenize(const std::string& authorization, std::shared_ptr<const v1::TokenizeRequest> request,
                Handler<v1::TokenizeResponse> handler, MayWait may_wait = nullptr);
  void Detokenize(const std::string& authorization, std::shared_ptr<const v1::DetokenizeRequest> request,
                  Handler<v1::DetokenizeResponse> handler, MayWait may_wait = nullptr);

  // A call of Embed that was started, for Cancel.
  struct EmbedTicket {
    std::shared_ptr<Search> search;
  };
  // Gives the embeddings of texts. The call ends at `end`. `traceparent` is as for Start.
  EmbedTicket Embed(const std::string& authorization, std::shared_ptr<const v1::EmbedRequest> request,
                    std::chrono::steady_clock::time_point end, Handler<v1::EmbedResponse> handler,
                    MayWait may_wait = nullptr, const std::string& traceparent = "");
  // The call ends with CANCELLED, if it has not ended.
  void Cancel(const EmbedTicket& ticket);

  // Asks whether the manager, or one of several, can take requests. NOT_FOUND when what answers is not a manager.
  void CheckHealth(Handler<grpc::health::v1::HealthCheckResponse> handler);

 private:
  struct Manager {
    std::unique_ptr<v1::InferenceService::Stub> inference;
    std::unique_ptr<grpc::health::v1::Health::Stub> health;
  };
  struct OpenCall {
    std::shared_ptr<BatchCall> call;
    size_t manager;
    bool is_for_large;  // For large requests only, so that small ones need not wait until these are sent.
  };
  struct Caller {
    std::vector<OpenCall> calls;
    v1::GetModelResponse model;
    std::chrono::steady_clock::time_point model_until;    // When `model` must be asked for again.
    std::chrono::steady_clock::time_point model_use;      // The last call of GetModel.
    std::chrono::steady_clock::time_point model_renewal;  // When `model` is going to be renewed, if that is planned.
    bool is_idle() const;
  };

  LeaderWatch::Hooks WatchHooks();
  bool IsAwaited(size_t manager) const;
  void AskHealth(size_t manager, std::function<void(LeaderWatch::Answer answer)> done);
  void GiveUp(size_t silent, size_t leader);
  // Returns null when there are too many callers.
  Caller* CallerOf(const std::string& authorization);
  // Sends the message with a new tag.
  Ticket Send(const std::string& authorization, v1::GenerateBatchRequest message, EntryHandler handler,
              std::shared_ptr<void> hold, std::optional<std::chrono::milliseconds> timeout, MayWait may_wait);
  void SendOnce(v1::GenerateBatchRequest message, const std::shared_ptr<Sending>& sending);
  // Handles an entry of the request, which was sent to this manager.
  void OnEntry(size_t manager, const std::shared_ptr<Sending>& sending, const v1::GenerateBatchEntry& entry);
  BatchCall* CallFor(const std::string& authorization, Caller* caller, bool is_large);
  // Asks the manager for the model, and keeps the answer.
  void AskModel(const std::string& authorization, Handler<v1::GetModelResponse> handler, MayWait may_wait);
  // Asks for the model again after a time, unless nobody has wanted to know it for long.
  void PlanModelRenewal(const std::string& authorization, Caller* caller);
  // Makes a call with one request and one response to a manager. `call` starts it. Returns its context.
  template <typename Request, typename Response, typename Call>
  std::shared_ptr<grpc::ClientContext> CallOnce(const std::string& authorization,
                                                std::shared_ptr<const Request> request,
                                                std::chrono::steady_clock::time_point end, Handler<Response> handler,
                                                Call call, const std::string& traceparent = "");
  // Makes such a call of InferenceService to the manager that leads.
  template <typename Request, typename Response, typename Call>
  void Infer(const std::string& authorization, std::shared_ptr<const Request> request, Handler<Response> handler,
             Call call, MayWait may_wait, std::shared_ptr<Search> search = nullptr);
  // Returns a search that begins now. The hold is null if there is no room for the request.
  std::shared_ptr<Search> NewSearch(size_t num_bytes, MayWait may_wait) const;
  // Asks the managers one after the other, `num_asked` of which were asked. The first one was `first`.
  void CheckHealthFrom(size_t first, size_t num_asked, Handler<grpc::health::v1::HealthCheckResponse> handler);
  // A call to this manager has ended with the status. If it is made again, calls `again` soon and returns true.
  // Otherwise the status becomes the one that says most.
  bool AsksAgain(size_t manager, google::rpc::Status* status, Attempts* attempts, std::function<void()> again);
  // A call has found no manager that takes it, and its policy makes no other one. If it may wait, calls `again` after a
  // pause and returns true. The more calls wait, the longer are the pauses.
  bool WaitsForManager(const google::rpc::Status& status, Attempts* attempts, std::function<void()> again);

  std::vector<Manager> managers_;
  size_t current_ = 0;  // The manager that is asked first.
  // Lets gRPC's threads reach the executor until this object is destroyed.
  struct Gate;
  const std::shared_ptr<Gate> gate_;
  const Executor executor_;
  const DelayedExecutor delayed_executor_;
  const size_t max_callers_;
  const std::chrono::milliseconds timeout_;
  const size_t max_waiting_bytes_;
  const std::shared_ptr<size_t> waiting_bytes_ = std::make_shared<size_t>(0);  // A hold may outlive this object.
  std::map<std::string, Caller> callers_;                                      // The key is the authorization.
  std::set<std::shared_ptr<UnaryCall>> unary_calls_;                           // Running calls of Infer.
  std::vector<std::weak_ptr<grpc::ClientContext>> contexts_;  // Of all calls with one response; some have ended.
  size_t num_pauses_ = 0;  // Number of calls that pause because no manager takes them.
  LeaderWatch watch_;
  uint64_t next_tag_ = 1;
  // A manager has said this last. Before that, it is the default of its flag.
  size_t max_message_bytes_ = size_t{16} << 20;
  size_t max_requests_per_call_ = kMaxRequestsPerCall;  // At most what a manager has said last.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_
