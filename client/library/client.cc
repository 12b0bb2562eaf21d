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
#include "client/library/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "grpcpp/support/client_interceptor.h"
#include "security/credentials.h"

namespace quire {
namespace {

// After this time without a connection, a stream that resumes says so.
constexpr absl::Duration kTellAfter = absl::Seconds(2);
// How long a stream that resumes waits before each attempt.
constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Milliseconds(500);
// Cancel is noticed within this time.
constexpr absl::Duration kLongestWait = absl::Milliseconds(50);
// How long a call that could not be sent waits for the connection that gRPC makes. A caller that tried again and again,
// with calls that fail at once, would stay without a connection for half a minute after the server is back.
constexpr absl::Duration kConnectTime = absl::Milliseconds(100);

constexpr char kConnectionErrorPayload[] = "quire.client/connection_error";
constexpr char kStandbyErrorPayload[] = "quire.client/standby_error";

bool HasReason(const grpc::Status& status, absl::string_view reason) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details())) return false;
  return std::any_of(details.details().begin(), details.details().end(), [&](const google::protobuf::Any& detail) {
    return detail.Is<google::rpc::ErrorInfo>() && detail.UnpackTo(&info) && info.reason() == reason;
  });
}

// Returns whether the manager has just started and may still find the request on a worker.
bool IsRestoring(const grpc::Status& status) {
  return HasReason(status, "RESTORING");
}

// Returns whether another manager leads, or none does.
bool IsStandingBy(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE && HasReason(status, "NOT_LEADER");
}

// Returns whether a manager has answered that does not lead, or none has answered.
bool IsOfNoLeader(const grpc::Status& status) {
  const bool is_unanswered = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                             status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  return IsStandingBy(status) || (is_unanswered && status.error_details().empty());
}

// Whether the call has ended and another one may get on: gRPC or a proxy has ended it, whose errors have no details, or
// the manager is not ready to answer.
bool IsCut(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
      return status.error_details().empty() || IsRestoring(status);
    default:
      return false;
  }
}

// Whether a manager has refused the request because it does not know this field.
bool IsUnknownField(const grpc::Status& status, int field) {
  return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
         absl::StrContains(status.error_message(), absl::StrCat("field number ", field, " of ")) &&
         absl::StrContains(status.error_message(), " is not known to this server");
}

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
  return absl::Status(static_cast<absl::StatusCode>(status.code()), message);
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.clear_details();
  details.set_code(status.error_code());
  details.set_message(status.error_message());
  absl::Status result = FromRpcStatus(details);
  // A manager's own UNAVAILABLE always carries details.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE && status.error_details().empty()) {
    result.SetPayload(kConnectionErrorPayload, absl::Cord());
  }
  if (IsStandingBy(status)) result.SetPayload(kStandbyErrorPayload, absl::Cord());
  return result;
}

bool IsConnectionError(const absl::Status& status) {
  return status.GetPayload(kConnectionErrorPayload).has_value();
}

bool IsStandbyError(const absl::Status& status) {
  return status.GetPayload(kStandbyErrorPayload).has_value();
}

GenerateStream::GenerateStream(ManagerLinks* links, const v1::GenerateRequest& request, absl::Duration timeout)
    : links_(links), request_(request), deadline_(absl::Now() + timeout) {
  if (const absl::Status valid = CheckUtf8Fields(request); !valid.ok()) {
    finished_ = valid;
    return;
  }
  for (const v1::ContinuedSample& sample : request.continue_from()) continued_[sample.index()] = sample;
  Call();
}

GenerateStream::~GenerateStream() {
  if (finished_.has_value()) return;
  Cancel();
  reader_->Finish();
}

void GenerateStream::Call() {
  link_ = &links_->Connect(deadline_, [this] {
    const MutexLock lock(&mutex_);
    return is_cancelled_;
  });
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(deadline_));
  const MutexLock lock(&mutex_);
  context_ = std::move(context);
  if (is_cancelled_) context_->TryCancel();
  if (resume_token_.empty()) {
    reader_ = link_->inference->Generate(context_.get(), request_);
    return;
  }
  v1::ResumeRequest resume;
  resume.set_resume_token(resume_token_);
  for (const auto& [index, sample] : received_) *resume.add_received() = sample;
  reader_ = link_->inference->Resume(context_.get(), resume);
}

void GenerateStream::Note(const v1::GenerateResponse& response) {
  cut_.reset();
  num_left_ = 0;
  has_standby_ = false;
  if (!response.resume_token().empty()) resume_token_ = response.resume_token();
  v1::ReceivedSample& sample = received_[response.index()];
  sample.set_index(response.index());
  sample.set_next_position(response.position() + response.token_ids_size());
  sample.set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
  if (request_.on_disconnect() != v1::ON_DISCONNECT_DETACH || request_.has_beam()) return;
  v1::ContinuedSample& continued = continued_[response.index()];
  continued.set_index(response.index());
  continued.mutable_token_ids()->MergeFrom(response.token_ids());
  continued.set_has_finish(sample.has_finish());
  if (!response.numerics_fingerprint().empty()) numerics_ = response.numerics_fingerprint();
  if (response.has_seed()) seed_ = response.seed() - response.index();
  // With a name, the request that continues it can be sent twice.
  if (!response.request_id().empty()) request_.set_request_id(response.request_id());
}

bool GenerateStream::Continue() {
  if (continued_.empty() || request_.best_of() > std::max(request_.n(), 1U)) return false;
  if (request_.has_prompt_logprobs() && !continued_.contains(0)) return false;
  resume_token_.clear();
  if (seed_.has_value()) request_.mutable_sampling()->set_seed(*seed_);
  request_.set_continue_numerics(numerics_);
  request_.clear_continue_from();
  for (const auto& [index, sample] : continued_) *request_.add_continue_from() = sample;
  return true;
}

bool GenerateStream::Next(v1::GenerateResponse* response) {
  while (!finished_.has_value()) {
    if (reader_->Read(response)) {
      Note(*response);
      return true;
    }
    if (!GoesOnAfter(reader_->Finish())) break;
    reader_ = nullptr;  // Before its context.
    Call();
  }
  return false;
}

bool GenerateStream::GoesOnAfter(const grpc::Status& status) {
  const bool is_detachable = request_.on_disconnect() == v1::ON_DISCONNECT_DETACH;
  if (is_detachable && IsUnknownField(status, v1::GenerateRequest::kOnDisconnectFieldNumber)) {
    request_.clear_on_disconnect();
    return true;
  }
  if (!resume_token_.empty() && HasReason(status, "REQUEST_UNKNOWN") && Continue()) {
    unknown_ = FromGrpcStatus(status);
    return true;
  }
  if (unknown_.has_value() && IsUnknownField(status, v1::GenerateRequest::kContinueFromFieldNumber)) {
    finished_ = *unknown_;
    return false;
  }
  // A manager that has just started waits for its workers.
  const bool stands_by = links_->size() > 1 && IsStandingBy(status);
  const bool is_cut =
      IsCut(status) || stands_by || (request_.continue_from_size() > 0 && HasReason(status, "NO_WORKER"));
  if (is_cut && !cut_.has_value()) {
    cut_ = FromGrpcStatus(status);
    last_attempt_ = absl::Now() + kResumeTime;
    delay_ = kFirstDelay;
    has_told_loss_ = false;
  }
  const bool is_unreached =
      IsCut(status) && link_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (stands_by || (IsCut(status) && !IsRestoring(status))) links_->Leave(*link_);
  if (links_->size() > 1 && received_.empty() && (stands_by || is_unreached) && AsksNextManager(stands_by)) return true;
  if (IsRestoring(status)) delay_ = kFirstDelay;  // It takes no longer than the workers need to answer.
  if (is_detachable && is_cut && MayResume() && WaitBeforeAttempt()) {
    TellLoss();
    return true;
  }
  if (is_cut && link_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
    link_->channel->WaitForConnected(absl::ToChronoTime(std::min(absl::Now() + kConnectTime, deadline_)));
  }
  // What has failed first says more than the attempts to connect again.
  const bool is_from_manager = status.ok() || !status.error_details().empty();
  finished_ = cut_.has_value() && !is_from_manager ? *cut_ : FromGrpcStatus(status);
  return false;
}

void GenerateStream::TellLoss() {
  if (has_told_loss_ || on_loss_ == nullptr || absl::Now() < last_attempt_ - kResumeTime + kTellAfter) return;
  has_told_loss_ = true;
  on_loss_();
}

bool GenerateStream::AsksNextManager(bool stands_by) {
  has_standby_ |= stands_by;
  if (++num_left_ % links_->size() != 0) return true;
  // Where one stands by, one will lead soon.
  return std::exchange(has_standby_, false) && WaitBeforeAttempt();
}

bool GenerateStream::MayResume() const {
  if (!resume_token_.empty()) return true;
  if (request_.continue_from_size() > 0) return true;
  // A manager that lets no request outlive its call has sent responses without a token.
  if (!received_.empty() || request_.request_id().empty()) return false;
  if (delay_ > kFirstDelay) return true;  // The call before had a connection, so the request may have begun.
  // When no connection could be made at all, the request has not begun, and the user should hear of it soon.
  return link_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

bool GenerateStream::WaitBeforeAttempt() {
  const absl::Time end = absl::Now() + delay_;
  delay_ = std::min(2 * delay_, kLongestDelay);
  if (end >= deadline_ || end > last_attempt_) return false;
  // gRPC goes on with a connection only while somebody waits for the channel or for a call, and otherwise looks every
  // five seconds. So the wait is one for the connection, and ends when it is there.
  grpc::Channel* const channel = links_->current().channel.get();
  const bool is_connected = channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
  for (absl::Time now = absl::Now(); now < end; now = absl::Now()) {
    {
      const MutexLock lock(&mutex_);
      if (is_connected && !is_cancelled_) cancelled_.WaitFor(&mutex_, absl::ToChronoMicroseconds(end - now));
      if (is_cancelled_) return false;
    }
    if (!is_connected && channel->WaitForConnected(absl::ToChronoTime(std::min(end, now + kLongestWait)))) break;
  }
  return true;
}

absl::Status GenerateStream::Finish() {
  if (!finished_.has_value()) finished_ = FromGrpcStatus(reader_->Finish());
  return *finished_;
}

void GenerateStream::Cancel() {
  const MutexLock lock(&mutex_);
  is_cancelled_ = true;
  cancelled_.NotifyAll();
  if (context_ != nullptr) context_->TryCancel();
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
  // A server that vanished without closing its connections is noticed within 40 seconds.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // Pings go on while a request waits and nothing is sent.
  // A server that is started again is found soon.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(kFirstDelay)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, static_cast<int>(absl::ToInt64Milliseconds(kLongestDelay)));
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

std::unique_ptr<GenerateBatchStream> Client::GenerateBatch() {
  FindLeader(absl::Now() + options_.timeout);
  return std::make_unique<GenerateBatchStream>(links_.current().inference.get());
}

template <typename Method, typename Request, typename Response>
absl::Status Client::Infer(Method method, const Request& request, Response* response, absl::Duration timeout) {
  QUIRE_RETURN_IF_ERROR(HeaderToken(options_.token).status());
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  const absl::Time deadline = absl::Now() + std::min(timeout, options_.timeout);
  bool has_standby = false;
  std::optional<absl::Status> standby_end;  // It says more than that the time is up.
  for (size_t num_asked = 1;; ++num_asked) {
    const Link& link = links_.Connect(deadline);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    const grpc::Status status = (link.inference.get()->*method)(&context, request, response);
    if (!IsOfNoLeader(status)) return FromGrpcStatus(status);
    links_.Leave(link);
    if (IsStandingBy(status)) standby_end = FromGrpcStatus(status);
    const absl::Status end = standby_end.value_or(FromGrpcStatus(status));
    if (links_.size() == 1 || absl::Now() + kFirstDelay >= deadline) return end;
    has_standby |= IsStandingBy(status);
    if (num_asked % links_.size() != 0) continue;
    // Where one stands by, one will lead soon.
    if (!std::exchange(has_standby, false)) return end;
    absl::SleepFor(kFirstDelay);
  }
}

template <typename Method, typename Request, typename Response>
absl::Status Client::Administer(Method method, const Request& request, Response* response) {
  QUIRE_RETURN_IF_ERROR(HeaderToken(options_.token).status());
  QUIRE_RETURN_IF_ERROR(CheckUtf8Fields(request));
  const absl::Time deadline = absl::Now() + options_.timeout;
  FindLeader(deadline);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  return FromGrpcStatus((links_.Connect(deadline).admin.get()->*method)(&context, request, response));
}

// One round: the call itself says why it fails.
void Client::FindLeader(absl::Time deadline) {
  for (size_t i = 0; i < links_.size() && links_.size() > 1; ++i) {
    const Link& link = links_.Connect(deadline);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(deadline));
    v1::GetModelResponse response;
    if (!IsOfNoLeader(link.inference->GetModel(&context, v1::GetModelRequest(), &response))) return;
    links_.Leave(link);
  }
}

absl::StatusOr<v1::TokenizeResponse> Client::Tokenize(const v1::TokenizeRequest& request) {
  v1::TokenizeResponse response;
  QUIRE_RETURN_IF_ERROR(Infer(&v1::InferenceService::Stub::Tokenize, request, &response));
  return response;
}

absl::StatusOr<v1::RenderChatResponse> Client::RenderChat(const v1::Chat& chat) {
  v1::RenderChatRequest request;
  *request.mutable_chat() = chat;
  v1::RenderChatResponse response;
  QUIRE_RETURN_IF_ERROR(Infer(&v1::InferenceService::Stub::RenderChat, request, &response));
  return response;
}

absl::StatusOr<v1::DetokenizeResponse> Client::Detokenize(const v1::DetokenizeRequest& request) {
  v1::DetokenizeResponse response;
  QUIRE_RETURN_IF_ERROR(Infer(&v1::InferenceService::Stub::Detokenize, request, &response));
  return response;
}

absl::StatusOr<v1::GetModelResponse> Client::GetModel() {
  v1::GetModelResponse response;
  QUIRE_RETURN_IF_ERROR(Infer(&v1::InferenceService::Stub::GetModel, v1::GetModelRequest(), &response));
  return response;
}

absl::Status Client::Abort(const std::string& request_id, absl::Duration timeout) {
  v1::AbortRequest request;
  request.set_request_id(request_id);
  v1::AbortResponse response;
  return Infer(&v1::InferenceService::Stub::Abort, request, &response, timeout);
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus() {
  v1::GetStatusResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::GetStatus, v1::GetStatusRequest(), &response));
  return response;
}

absl::StatusOr<v1::ExplainWaitResponse> Client::ExplainWait(const std::string& request_id) {
  v1::ExplainWaitRequest request;
  request.set_request_id(request_id);
  v1::ExplainWaitResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::ExplainWait, request, &response));
  return response;
}

absl::StatusOr<v1::PinPrefixResponse> Client::PinPrefix(const v1::PinPrefixRequest& request) {
  v1::PinPrefixResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::PinPrefix, request, &response));
  return response;
}

absl::StatusOr<v1::UnpinPrefixResponse> Client::UnpinPrefix(const v1::UnpinPrefixRequest& request) {
  v1::UnpinPrefixResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::UnpinPrefix, request, &response));
  return response;
}

std::unique_ptr<WatchBlocksStream> Client::WatchBlocks(const v1::WatchBlocksRequest& request, absl::Duration timeout) {
  FindLeader(absl::Now() + std::min(timeout, options_.timeout));
  return std::make_unique<WatchBlocksStream>(links_.current().admin.get(), request, timeout);
}

absl::StatusOr<v1::DescribeBlockResponse> Client::DescribeBlock(const v1::DescribeBlockRequest& request) {
  v1::DescribeBlockResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::DescribeBlock, request, &response));
  return response;
}

absl::StatusOr<v1::ListRequestsResponse> Client::ListRequests(const v1::ListRequestsRequest& request) {
  v1::ListRequestsResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::ListRequests, request, &response));
  return response;
}

absl::StatusOr<v1::DescribeRequestResponse> Client::DescribeRequest(const std::string& request_id) {
  v1::DescribeRequestRequest request;
  request.set_request_id(request_id);
  v1::DescribeRequestResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::DescribeRequest, request, &response));
  return response;
}

absl::StatusOr<v1::AuditResponse> Client::Audit(const v1::AuditRequest& request) {
  v1::AuditResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::Audit, request, &response));
  return response;
}

absl::StatusOr<v1::DrainResponse> Client::Drain(const std::string& worker, bool migrates) {
  v1::DrainRequest request;
  request.set_worker(worker);
  request.set_migrate(migrates);
  v1::DrainResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::Drain, request, &response));
  return response;
}

absl::Status Client::Undrain(const std::string& worker) {
  v1::UndrainRequest request;
  request.set_worker(worker);
  v1::UndrainResponse response;
  return Administer(&v1::AdminService::Stub::Undrain, request, &response);
}

absl::StatusOr<v1::FlushPrefixCacheResponse> Client::FlushPrefixCache(const v1::FlushPrefixCacheRequest& request) {
  v1::FlushPrefixCacheResponse response;
  QUIRE_RETURN_IF_ERROR(Administer(&v1::AdminService::Stub::FlushPrefixCache, request, &response));
  return response;
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
