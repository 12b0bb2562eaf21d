// SPDX-License-Identifier: Apache-2.0

#include "client/library/client.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/library/bearer_token.h"
#include "client/library/generate_streams.h"
#include "client/library/utf8.h"
#include "client/policy/call_status.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/support/client_interceptor.h"
#include "security/credentials.h"

namespace quire {
namespace {

// How long gRPC waits between two attempts to connect, at first and at most.
constexpr absl::Duration kFirstReconnectDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestReconnectDelay = absl::Milliseconds(500);

constexpr char kConnectionErrorPayload[] = "quire.client/connection_error";
constexpr char kStandbyErrorPayload[] = "quire.client/standby_error";
constexpr char kNoWorkerErrorPayload[] = "quire.client/no_worker_error";

void SetTimeout(grpc::ClientContext* context, absl::Duration timeout) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
}

// Adds the token to every call. gRPC's own call credentials would do so on TLS alone, not on unix sockets.
class TokenSender : public grpc::experimental::Interceptor {
 public:
  explicit TokenSender(const std::string& token) : authorization_(absl::StrCat("Bearer ", token)) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->emplace("authorization", authorization_);
    }
    methods->Proceed();
  }

 private:
  const std::string authorization_;
};

class TokenSenderFactory : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenSenderFactory(std::string token) : token_(std::move(token)) {}

  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo* /*call*/) override {
    return new TokenSender(token_);
  }

 private:
  const std::string token_;
};

}  // namespace

absl::Status FromRpcStatus(const google::rpc::Status& status) {
  std::string message = status.message();
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        const std::string line = absl::StrCat(violation.field(), ": ", violation.description());
        if (!absl::StartsWith(message, line)) absl::StrAppend(&message, "\n  ", line);
      }
    } else if (any.UnpackTo(&retry)) {
      const absl::Duration delay =
          absl::Seconds(retry.retry_delay().seconds()) + absl::Nanoseconds(retry.retry_delay().nanos());
      absl::StrAppend(&message, "\n  try again after ", absl::FormatDuration(delay));
    }
  }
  absl::Status result(static_cast<absl::StatusCode>(status.code()), message);
  // A manager's own UNAVAILABLE always carries details.
  if (absl::IsUnavailable(result) && status.details().empty()) result.SetPayload(kConnectionErrorPayload, absl::Cord());
  if (IsStandingBy(status)) result.SetPayload(kStandbyErrorPayload, absl::Cord());
  if (HasReason(status, "NO_WORKER")) result.SetPayload(kNoWorkerErrorPayload, absl::Cord());
  return result;
}

google::rpc::Status RpcStatusOf(const grpc::Status& status) {
  google::rpc::Status result;
  if (!result.ParseFromString(status.error_details())) result.clear_details();
  // Details that cannot be read show that a server has answered.
  if (result.details().empty() && !status.error_details().empty()) result.add_details();
  result.set_code(status.error_code());
  result.set_message(status.error_message());
  return result;
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return status.ok() ? absl::OkStatus() : FromRpcStatus(RpcStatusOf(status));
}

bool IsConnectionError(const absl::Status& status) {
  return status.GetPayload(kConnectionErrorPayload).has_value();
}

bool IsStandbyError(const absl::Status& status) {
  return status.GetPayload(kStandbyErrorPayload).has_value();
}

bool IsNoWorkerError(const absl::Status& status) {
  return status.GetPayload(kNoWorkerErrorPayload).has_value();
}

WatchBlocksStream::WatchBlocksStream(v1::AdminService::Stub* stub, const v1::WatchBlocksRequest& request,
                                     absl::Duration timeout) {
  if (const absl::Status valid = CheckUtf8Fields(request); !valid.ok()) {
    finished_ = valid;
    return;
  }
  SetTimeout(&context_, timeout);
  reader_ = stub->WatchBlocks(&context_, request);
}

WatchBlocksStream::~WatchBlocksStream() {
  static_cast<void>(Finish());
}

bool WatchBlocksStream::Next(v1::WatchBlocksResponse* message) {
  has_ended_ = reader_ == nullptr || !reader_->Read(message);
  return !has_ended_;
}

absl::Status WatchBlocksStream::Finish() {
  if (finished_.has_value()) return *finished_;
  if (!has_ended_) context_.TryCancel();
  finished_ = FromGrpcStatus(reader_->Finish());
  return *finished_;
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options, absl::Duration connect_timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(connect_timeout)));
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Every client has its own connection.
  // A server that vanished without closing its connections is noticed within the sum of these times. It must be shorter
  // than the manager's --detach-grace, and the first one longer than the 5 seconds for which managers want no probe.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 8'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 8'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Ping while a request waits and nothing is sent.
  // A server that is started again is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kFirstReconnectDelay)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kLongestReconnectDelay)));
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (!options.tls.authority.empty()) credentials = TlsChannelCredentials(options.tls);
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  const absl::StatusOr<std::string> token = HeaderToken(options.token);
  // Without credentials every call ends with INVALID_ARGUMENT; gRPC would abort on such a header.
  if (!token.ok()) credentials = nullptr;
  if (token.ok() && !token->empty()) interceptors.push_back(std::make_unique<TokenSenderFactory>(*token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(options.endpoint, credentials, arguments,
                                                                 std::move(interceptors));
}

Client::Client(const ClientOptions& options) : options_(options), links_(options) {}

std::unique_ptr<GenerateStream> Client::Generate(const v1::GenerateRequest& request, absl::Duration timeout) {
  return std::make_unique<GenerateStream>(&links_, request, timeout);
}

std::unique_ptr<GenerateStreams> Client::GenerateMany() {
  return std::make_unique<GenerateStreams>(&links_);
}

std::unique_ptr<GenerateBatchStream> Client::GenerateBatch() {
  FindLeader(absl::Now() + options_.timeout);
  return std::make_unique<GenerateBatchStream>(links_.current().inference.get());
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Infer(Method<v1::InferenceService::Stub, Request, Response> method,
                                       const Request& request, absl::Duration timeout) {
  QUIRE_RETURN_IF_ERROR(HeaderToken(options_.token).status());
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  const absl::Time deadline = absl::Now() + std::min(timeout, options_.timeout);
  CallPolicy policy({.num_managers = links_.size(), .deadline = deadline});
  while (true) {
    const Link& link = links_.Connect(deadline);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    Response response;
    const grpc::Status status = (link.inference.get()->*method)(&context, request, &response);
    if (status.ok()) return response;
    const CallAction action = policy.After(RpcStatusOf(status), absl::Now());
    if (action.leaves) links_.Leave(link);
    if (action.kind == CallAction::Kind::kStop) return FromRpcStatus(action.error);
    absl::SleepFor(action.delay);
  }
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Administer(Method<v1::AdminService::Stub, Request, Response> method,
                                            const Request& request) {
  QUIRE_RETURN_IF_ERROR(HeaderToken(options_.token).status());
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  const absl::Time deadline = absl::Now() + options_.timeout;
  FindLeader(deadline);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  Response response;
  QUIRE_RETURN_IF_ERROR(FromGrpcStatus((links_.Connect(deadline).admin.get()->*method)(&context, request, &response)));
  return response;
}

// One round, in which a manager that hangs is left after a second. The call itself then says why it fails.
void Client::FindLeader(absl::Time deadline) {
  for (size_t i = 0; i < links_.size() && links_.size() > 1; ++i) {
    const Link& link = links_.Connect(deadline);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(std::min(deadline, absl::Now() + kConnectPatience)));
    v1::GetModelResponse response;
    if (!IsOfNoLeader(RpcStatusOf(link.inference->GetModel(&context, {}, &response)))) return;
    links_.Leave(link);
  }
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request) {
  return Infer(&v1::InferenceService::Stub::Tokenize, request);
}

absl::StatusOr<v1::RenderChatResponse> Client::RenderChat(const v1::Chat& chat) {
  v1::RenderChatRequest request;
  *request.mutable_chat() = chat;
  return Infer(&v1::InferenceService::Stub::RenderChat, request);
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request) {
  return Infer(&v1::InferenceService::Stub::Detokenize, request);
}

absl::StatusOr<v1::EmbedResponse> Client::Embed(const v1::EmbedRequest& request) {
  return Infer(&v1::InferenceService::Stub::Embed, request);
}

absl::StatusOr<v1::GetModelResponse> Client::GetModel() {
  return Infer(&v1::InferenceService::Stub::GetModel, v1::GetModelRequest());
}

absl::Status Client::Abort(const std::string& request_id, absl::Duration timeout) {
  v1::AbortRequest request;
  request.set_request_id(request_id);
  return Infer(&v1::InferenceService::Stub::Abort, request, timeout).status();
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus() {
  return Administer(&v1::AdminService::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<v1::ExplainWaitResponse> Client::ExplainWait(const std::string& request_id) {
  v1::ExplainWaitRequest request;
  request.set_request_id(request_id);
  return Administer(&v1::AdminService::Stub::ExplainWait, request);
}

absl::StatusOr<v1::PinPrefixResponse> Client::PinPrefix(const v1::PinPrefixRequest& request) {
  return Administer(&v1::AdminService::Stub::PinPrefix, request);
}

absl::StatusOr<v1::UnpinPrefixResponse> Client::UnpinPrefix(const v1::UnpinPrefixRequest& request) {
  return Administer(&v1::AdminService::Stub::UnpinPrefix, request);
}

std::unique_ptr<WatchBlocksStream> Client::WatchBlocks(const v1::WatchBlocksRequest& request, absl::Duration timeout) {
  FindLeader(absl::Now() + std::min(timeout, options_.timeout));
  return std::make_unique<WatchBlocksStream>(links_.current().admin.get(), request, timeout);
}

absl::StatusOr<v1::DescribeBlockResponse> Client::DescribeBlock(const v1::DescribeBlockRequest& request) {
  return Administer(&v1::AdminService::Stub::DescribeBlock, request);
}

absl::StatusOr<v1::ListRequestsResponse> Client::ListRequests(const v1::ListRequestsRequest& request) {
  return Administer(&v1::AdminService::Stub::ListRequests, request);
}

absl::StatusOr<v1::DescribeRequestResponse> Client::DescribeRequest(const std::string& request_id) {
  v1::DescribeRequestRequest request;
  request.set_request_id(request_id);
  return Administer(&v1::AdminService::Stub::DescribeRequest, request);
}

absl::StatusOr<v1::AuditResponse> Client::Audit(const v1::AuditRequest& request) {
  return Administer(&v1::AdminService::Stub::Audit, request);
}

absl::StatusOr<v1::DrainResponse> Client::Drain(const std::string& worker, bool migrates) {
  v1::DrainRequest request;
  request.set_worker(worker);
  request.set_migrate(migrates);
  return Administer(&v1::AdminService::Stub::Drain, request);
}

absl::Status Client::Undrain(const std::string& worker) {
  v1::UndrainRequest request;
  request.set_worker(worker);
  return Administer(&v1::AdminService::Stub::Undrain, request).status();
}

absl::StatusOr<v1::FlushPrefixCacheResponse> Client::FlushPrefixCache(const v1::FlushPrefixCacheRequest& request) {
  return Administer(&v1::AdminService::Stub::FlushPrefixCache, request);
}

absl::StatusOr<bool> Client::IsServing(const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  QUIRE_RETURN_IF_ERROR(HeaderToken(options_.token).status());
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  const absl::Time deadline = absl::Now() + options_.timeout;
  std::optional<absl::Status> failure;
  bool is_answered = false;
  for (size_t i = 0; i < links_.size(); ++i) {
    const Link& link = links_.Connect(deadline);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = link.health->Check(&context, request, &response);
    if (status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING) return true;
    is_answered |= status.ok();
    if (!status.ok() && !failure.has_value()) failure = FromGrpcStatus(status);
    links_.Leave(link);
  }
  if (!is_answered) return *failure;
  return false;
}

}  // namespace quire
