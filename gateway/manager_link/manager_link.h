#ifndef QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_
#define QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gateway/manager_link/batch_call.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace quire {

// The connection of the gateway to its manager: one channel, and on it calls of GenerateBatch that stay open. Each
// bearer token has calls of its own, because the manager takes the tenant of a request from the token of its call. All
// functions and handlers run on the owner's thread.
class ManagerLink {
 public:
  // A request that was started, for Cancel.
  struct Ticket {
    std::weak_ptr<BatchCall> call;
    uint64_t tag = 0;
  };
  template <typename Response>
  using Handler = std::function<void(const google::rpc::Status& status, const Response& response)>;

  // When a call of GenerateBatch has so many requests, another call is opened. The manager's own limit is larger.
  static constexpr size_t kMaxRequestsPerCall = 512;

  // `max_callers` is the number of bearer tokens that have calls at the same time. An idle one gives way to a new one;
  // without an idle one, requests of new tokens are refused with RESOURCE_EXHAUSTED. Unary calls end after `timeout`.
  // When it is destroyed, `executor` must not run functions any more.
  ManagerLink(std::shared_ptr<grpc::Channel> channel, Executor executor, size_t max_callers,
              std::chrono::milliseconds timeout);
  ~ManagerLink();

  // `authorization` is the metadata of the call, or empty. It is printable ASCII.
  Ticket Start(const std::string& authorization, const v1::GenerateRequest& request, EntryHandler handler);
  // Goes on with the stream of a request.
  Ticket Resume(const std::string& authorization, const v1::ResumeRequest& request, EntryHandler handler);
  // The request ends, and its handler is not called any more.
  void Cancel(const Ticket& ticket);

  // Describes the model. An answer is kept for a second.
  void GetModel(const std::string& authorization, Handler<v1::GetModelResponse> handler);

  // Shows the prompt that a conversation becomes.
  void RenderChat(const std::string& authorization, const v1::Chat& chat, Handler<v1::RenderChatResponse> handler);

  void Tokenize(const std::string& authorization, const v1::TokenizeRequest& request,
                Handler<v1::TokenizeResponse> handler);
  void Detokenize(const std::string& authorization, const v1::DetokenizeRequest& request,
                  Handler<v1::DetokenizeResponse> handler);

  // Asks whether the manager can take requests. NOT_FOUND when what answers is not a manager.
  void CheckHealth(Handler<grpc::health::v1::HealthCheckResponse> handler);

 private:
  struct Caller {
    std::vector<std::shared_ptr<BatchCall>> calls;
    v1::GetModelResponse model;
    std::chrono::steady_clock::time_point model_until;  // When `model` must be asked for again.
    bool is_idle() const;
  };

  // Returns null when there are too many callers.
  Caller* CallerOf(const std::string& authorization);
  // Sends the message with a new tag.
  Ticket Send(const std::string& authorization, v1::GenerateBatchRequest message, EntryHandler handler);
  BatchCall* CallFor(const std::string& authorization, Caller* caller);
  // Makes a call with one request and one response. `call` starts it.
  template <typename Request, typename Response, typename Call>
  void CallOnce(const std::string& authorization, const Request& request, Handler<Response> handler, Call call);

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
  const Executor executor_;
  const size_t max_callers_;
  const std::chrono::milliseconds timeout_;
  std::map<std::string, Caller> callers_;  // By authorization.
  uint64_t next_tag_ = 1;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_MANAGER_LINK_MANAGER_LINK_H_
