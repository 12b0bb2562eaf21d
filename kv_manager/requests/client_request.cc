#include "kv_manager/requests/client_request.h"

#include <chrono>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kv_manager/requests/request_log.h"
#include "kv_manager/requests/response_set.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/text/stop_string_condition.h"

namespace quire {

std::optional<TraceParent> TraceParentOf(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(kTraceparentKey);
  if (found == metadata.end() || metadata.count(kTraceparentKey) > 1) return std::nullopt;
  return ParseTraceparent({found->second.data(), found->second.size()});
}

int64_t DeadlineMicros(const grpc::ServerContextBase& context, const Clock& clock) {
  const auto deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::numeric_limits<int64_t>::max();
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::system_clock::now());
  return clock.NowMicros() + left.count();
}

void ClientRequest::Start(int64_t deadline_us) {
  Request request;
  if (absl::Status status = MakeStream(deadline_us, &request); !status.ok()) return writer_->EndCall(nullptr, status);

  const std::shared_ptr<TokenStream> stream = this->stream();
  const RequestId id = request.id;
  if (absl::Status status = Submit(std::move(request), stream); !status.ok()) stream->OnFailed(std::move(status));
  // What ended the stream before the submission, an Abort or the client that left, found nothing to cancel in the
  // engine.
  if (IsCancelled()) stream->Close();
  if (stream->has_ended()) environment_->engine->Cancel(id, FinishReason::kCancelled);
}

absl::Status ClientRequest::Submit(Request request, const std::shared_ptr<TokenStream>& stream) {
  UnreadRequests::Hold hold = environment_->unread->Add();  // Before: a drain must not find neither it nor the request.
  QUIRE_RETURN_IF_ERROR(environment_->engine->Submit(std::move(request), stream));
  const std::lock_guard lock(mutex_);
  unread_ = std::move(hold);
  return absl::OkStatus();
}

bool ClientRequest::IsCancelled() {
  std::lock_guard lock(mutex_);
  return is_cancelled_;
}

absl::Status ClientRequest::MakeStream(int64_t deadline_us, Request* request) {
  const std::shared_ptr<const ServedModel> model = environment_->engine->model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  auto valid = ValidateGenerate(request_, *model, environment_->limits, environment_->random->Next());
  if (!valid.ok()) return valid.status();
  QUIRE_RETURN_IF_ERROR(AssumeTenant(caller_, &valid->request));

  std::string name = request_.request_id();
  if (name.empty()) name = absl::StrFormat("%016x", environment_->random->Next());
  valid->request.id = RequestId(environment_->next_request_id++);
  valid->request.arrival_us = environment_->clock->NowMicros();
  valid->request.deadline_us = deadline_us;
  if (valid->request.beam.has_value() && !valid->output.stop.empty()) {
    std::shared_ptr<const Tokenizer> tokenizer(model, model->tokenizer.get());
    valid->request.beam_stop =
        std::make_shared<StopStringCondition>(std::move(tokenizer), valid->request.prompt, valid->output);
  }

  const std::string owner = OwnerOf(caller_);
  TokenStream::Environment stream_environment{
      environment_->engine, run_later_,
      [registry = environment_->registry, owner, name](const StreamEnd& /*end*/) { registry->Remove(owner, name); },
      environment_->max_outbox_tokens};
  if (environment_->logs_requests) {
    const auto log = std::make_shared<RequestLog>(environment_->clock, name, valid->request.tenant, span_);
    stream_environment.on_tokens = [log] { log->OnTokens(); };
    stream_environment.on_end = [log, remove = std::move(stream_environment.on_end)](const StreamEnd& end) {
      log->OnEnd(end);
      remove(end);
    };
  }
  auto stream = std::make_shared<TokenStream>(std::move(stream_environment), valid->request.id,
                                              ResponseSet(model, name, *valid), writer_);
  *request = std::move(valid->request);
  // Under the lock: once it is registered, an Abort may make it write.
  std::lock_guard lock(mutex_);
  const absl::Status added = environment_->registry->Add(owner, name, stream);
  if (absl::IsResourceExhausted(added)) environment_->counts->Count(RpcRefusal::kTooManyRequests);
  QUIRE_RETURN_IF_ERROR(added);
  stream_ = std::move(stream);
  return absl::OkStatus();
}

std::shared_ptr<TokenStream> ClientRequest::stream() {
  std::lock_guard lock(mutex_);
  return stream_;
}

void ClientRequest::OnWritten(bool ok) {
  stream()->OnWritten(ok);
}

void ClientRequest::Cancel() {
  std::shared_ptr<TokenStream> stream;
  {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Close();
}

}  // namespace quire
