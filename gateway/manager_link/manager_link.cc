#include "gateway/manager_link/manager_link.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr std::chrono::seconds kModelLife(1);

google::rpc::Status StatusOf(grpc::StatusCode code, std::string message) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(std::move(message));
  return status;
}

}  // namespace

bool ManagerLink::Caller::is_idle() const {
  return std::all_of(calls.begin(), calls.end(), [](const auto& call) { return call->num_requests() == 0; });
}

ManagerLink::ManagerLink(std::shared_ptr<grpc::Channel> channel, Executor executor, size_t max_callers,
                         std::chrono::milliseconds timeout)
    : channel_(std::move(channel)),
      inference_(v1::InferenceService::NewStub(channel_)),
      health_(grpc::health::v1::Health::NewStub(channel_)),
      executor_(std::move(executor)),
      max_callers_(max_callers),
      timeout_(timeout) {}

ManagerLink::~ManagerLink() {
  for (const auto& [authorization, caller] : callers_) {
    for (const auto& call : caller.calls) call->End();
  }
}

ManagerLink::Caller* ManagerLink::CallerOf(const std::string& authorization) {
  const auto found = callers_.find(authorization);
  if (found != callers_.end()) return &found->second;
  if (callers_.size() >= max_callers_) {
    const auto idle =
        std::find_if(callers_.begin(), callers_.end(), [](const auto& entry) { return entry.second.is_idle(); });
    if (idle == callers_.end()) return nullptr;
    for (const auto& call : idle->second.calls) call->End();
    callers_.erase(idle);
  }
  return &callers_[authorization];
}

BatchCall* ManagerLink::CallFor(const std::string& authorization, Caller* caller) {
  for (const auto& call : caller->calls) {
    if (call->num_requests() < kMaxRequestsPerCall) return call.get();
  }
  const auto ended = [this, authorization](BatchCall* call) {
    const auto found = callers_.find(authorization);
    if (found == callers_.end()) return;
    std::erase_if(found->second.calls, [call](const auto& other) { return other.get() == call; });
    found->second.model_until = {};  // The next manager may have another model.
    if (found->second.calls.empty()) callers_.erase(found);
  };
  caller->calls.push_back(BatchCall::Start(inference_.get(), authorization, executor_, ended));
  return caller->calls.back().get();
}

ManagerLink::Ticket ManagerLink::Start(const std::string& authorization, const v1::GenerateRequest& request,
                                       EntryHandler handler) {
  v1::GenerateBatchRequest message;
  *message.mutable_start() = request;
  return Send(authorization, std::move(message), std::move(handler));
}

ManagerLink::Ticket ManagerLink::Resume(const std::string& authorization, const v1::ResumeRequest& request,
                                        EntryHandler handler) {
  v1::GenerateBatchRequest message;
  *message.mutable_resume() = request;
  return Send(authorization, std::move(message), std::move(handler));
}

ManagerLink::Ticket ManagerLink::Send(const std::string& authorization, v1::GenerateBatchRequest message,
                                      EntryHandler handler) {
  message.set_tag(next_tag_++);
  Caller* const caller = CallerOf(authorization);
  if (caller == nullptr) {
    v1::GenerateBatchEntry entry;
    *entry.mutable_end() =
        StatusOf(grpc::StatusCode::RESOURCE_EXHAUSTED,
                 absl::StrCat("requests with ", max_callers_, " bearer tokens are running, which is the limit"));
    executor_([handler, entry] { handler(entry); });
    return {};
  }
  BatchCall* const call = CallFor(authorization, caller);
  const uint64_t tag = message.tag();
  call->Send(std::move(message), std::move(handler));
  return {call->weak_from_this(), tag};
}

void ManagerLink::Cancel(const Ticket& ticket) {
  if (const std::shared_ptr<BatchCall> call = ticket.call.lock(); call != nullptr) call->Cancel(ticket.tag);
}

template <typename Request, typename Response, typename Call>
void ManagerLink::CallOnce(const std::string& authorization, const Request& request, Handler<Response> handler,
                           Call call) {
  struct State {
    grpc::ClientContext context;
    Request request;
    Response response;
  };
  auto state = std::make_shared<State>();
  state->request = request;
  state->context.set_deadline(std::chrono::system_clock::now() + timeout_);
  if (!authorization.empty()) state->context.AddMetadata("authorization", authorization);
  call(&state->context, &state->request, &state->response,
       [executor = executor_, state, handler = std::move(handler)](const grpc::Status& status) {
         executor([state, handler, end = RpcStatusOf(status)] { handler(end, state->response); });
       });
}

void ManagerLink::GetModel(const std::string& authorization, Handler<v1::GetModelResponse> handler) {
  const auto found = callers_.find(authorization);
  if (found != callers_.end() && std::chrono::steady_clock::now() < found->second.model_until) {
    return handler(google::rpc::Status(), found->second.model);
  }
  CallOnce<v1::GetModelRequest, v1::GetModelResponse>(
      authorization, {},
      [this, authorization, handler = std::move(handler)](const google::rpc::Status& status,
                                                          const v1::GetModelResponse& model) {
        const auto caller = callers_.find(authorization);
        if (status.code() == 0 && caller != callers_.end()) {
          caller->second.model = model;
          caller->second.model_until = std::chrono::steady_clock::now() + kModelLife;
        }
        handler(status, model);
      },
      [this](auto... arguments) { inference_->async()->GetModel(std::move(arguments)...); });
}

void ManagerLink::RenderChat(const std::string& authorization, const v1::Chat& chat,
                             Handler<v1::RenderChatResponse> handler) {
  v1::RenderChatRequest request;
  *request.mutable_chat() = chat;
  CallOnce<v1::RenderChatRequest, v1::RenderChatResponse>(
      authorization, request, std::move(handler),
      [this](auto... arguments) { inference_->async()->RenderChat(std::move(arguments)...); });
}

void ManagerLink::Tokenize(const std::string& authorization, const v1::TokenizeRequest& request,
                           Handler<v1::TokenizeResponse> handler) {
  CallOnce<v1::TokenizeRequest, v1::TokenizeResponse>(
      authorization, request, std::move(handler),
      [this](auto... arguments) { inference_->async()->Tokenize(std::move(arguments)...); });
}

void ManagerLink::Detokenize(const std::string& authorization, const v1::DetokenizeRequest& request,
                             Handler<v1::DetokenizeResponse> handler) {
  CallOnce<v1::DetokenizeRequest, v1::DetokenizeResponse>(
      authorization, request, std::move(handler),
      [this](auto... arguments) { inference_->async()->Detokenize(std::move(arguments)...); });
}

void ManagerLink::CheckHealth(Handler<grpc::health::v1::HealthCheckResponse> handler) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(v1::InferenceService::service_full_name());
  CallOnce<grpc::health::v1::HealthCheckRequest, grpc::health::v1::HealthCheckResponse>(
      "", request, std::move(handler), [this](auto... arguments) { health_->async()->Check(std::move(arguments)...); });
}

}  // namespace quire
