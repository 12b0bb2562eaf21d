#include "kv_manager/requests/client_request.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kv_manager/requests/request_log.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/response_set.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/text/stop_string_condition.h"

namespace quire {
namespace {

constexpr int kMaxTokenizedAgain = 3;

}  // namespace

ClientRequest::ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller,
                             const std::optional<TraceParent>& parent, v1::GenerateRequest request,
                             ResponseWriter* writer, std::function<void(std::function<void()>)> run_later)
    : environment_(environment),
      caller_(std::move(caller)),
      span_(StartSpan(parent, {environment->random.Next(), environment->random.Next(), environment->random.Next()})),
      request_(std::move(request)),
      writer_(writer),
      run_later_(std::move(run_later)) {}

void ClientRequest::Start(int64_t deadline_us) {
  Request request;
  if (absl::Status status = MakeStream(deadline_us, &request); !status.ok()) return writer_->EndCall(nullptr, status);

  const std::shared_ptr<TokenStream> stream = this->stream();
  const RequestId id = request.id;
  if (absl::Status status = environment_->engine->Submit(std::move(request), stream); !status.ok()) {
    StopWaiting();  // A drain waits only for the readers of requests that the engine has taken.
    stream->OnFailed(std::move(status));
  }
  // An Abort, or a client that left, may have ended the stream before the engine knew the request.
  if (IsCancelled()) stream->Close();
  if (stream->has_ended()) environment_->engine->Cancel(id, FinishReason::kCancelled);
}

absl::Status ClientRequest::MakeStream(int64_t deadline_us, Request* request) {
  std::shared_ptr<const ServedModel> model = environment_->engine->model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  const uint64_t drawn_seed = environment_->random.Next();
  absl::StatusOr<ValidRequest> valid = ValidateGenerate(request_, *model, environment_->options.limits, drawn_seed);
  // A long text takes time to tokenize. If another generation is served by then, the text is tokenized again.
  for (int i = 0; i < kMaxTokenizedAgain && environment_->engine->model() != model; ++i) {
    model = environment_->engine->model();
    if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
    valid = ValidateGenerate(request_, *model, environment_->options.limits, drawn_seed);
  }
  if (!valid.ok()) return valid.status();
  QUIRE_RETURN_IF_ERROR(AssumeTenant(caller_, &valid->request));

  std::string name = request_.request_id();
  if (name.empty()) name = absl::StrFormat("%016x", environment_->random.Next());
  valid->request.id = environment_->registry.NextId();
  valid->request.generation = model->generation;
  valid->request.arrival_us = environment_->clock->NowMicros();
  valid->request.deadline_us = deadline_us;
  if (valid->request.beam.has_value() && !valid->output.stop.empty()) {
    std::shared_ptr<const Tokenizer> tokenizer(model, model->tokenizer.get());
    valid->request.beam_stop =
        std::make_shared<StopStringCondition>(std::move(tokenizer), valid->request.prompt, valid->output);
  }
  std::shared_ptr<TokenStream> stream = MakeTokenStream(name, *valid, model);
  *request = std::move(valid->request);
  // The lock is held, because an Abort may make the stream write as soon as it is registered.
  const MutexLock lock(&mutex_);
  absl::StatusOr<std::unique_ptr<RequestRegistry::Registration>> registration =
      environment_->registry.Register(OwnerOf(caller_), name, stream, request->tenant);
  if (absl::IsResourceExhausted(registration.status())) environment_->counts.Count(RpcRefusal::kTooManyRequests);
  if (!registration.ok()) return registration.status();
  registration_ = *std::move(registration);
  stream_ = std::move(stream);
  return absl::OkStatus();
}

std::shared_ptr<TokenStream> ClientRequest::MakeTokenStream(const std::string& name, const ValidRequest& valid,
                                                            std::shared_ptr<const ServedModel> model) {
  TokenStream::Environment environment{.engine = environment_->engine,
                                       .run_later = run_later_,
                                       .on_end = [this](const StreamEnd& /*end*/) { FreeName(); },
                                       .max_outbox_tokens = environment_->options.max_outbox_tokens};
  if (environment_->options.logs_requests) {
    const auto log = std::make_shared<RequestLog>(environment_->clock, name, valid.request.tenant, span_);
    environment.on_tokens = [log] { log->OnTokens(); };
    environment.on_end = [this, log](const StreamEnd& end) {
      log->OnEnd(end);
      FreeName();
    };
  }
  return std::make_shared<TokenStream>(std::move(environment), valid.request.id,
                                       ResponseSet(std::move(model), name, valid), writer_);
}

void ClientRequest::FreeName() {
  const MutexLock lock(&mutex_);
  registration_->FreeName();
}

void ClientRequest::StopWaiting() {
  const MutexLock lock(&mutex_);
  registration_->StopWaiting();
}

std::shared_ptr<TokenStream> ClientRequest::stream() {
  const MutexLock lock(&mutex_);
  return stream_;
}

bool ClientRequest::IsCancelled() {
  const MutexLock lock(&mutex_);
  return is_cancelled_;
}

void ClientRequest::OnWritten(bool ok) {
  stream()->OnWritten(ok);
}

void ClientRequest::Cancel() {
  std::shared_ptr<TokenStream> stream;
  {
    const MutexLock lock(&mutex_);
    is_cancelled_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Close();
}

}  // namespace quire
