#include "kv_manager/generate_call.h"

#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "kv_manager/message_bytes.h"
#include "kv_manager/response_set.h"
#include "kv_manager/rpc_status.h"
#include "kv_manager/stop_string_condition.h"

namespace quire {

std::shared_ptr<GenerateCall> GenerateCall::New(GenerateEnvironment* environment, grpc::CallbackServerContext* context,
                                                v1::GenerateRequest request) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(environment, context, std::move(request)));
  call->self_ = call;
  return call;
}

void GenerateCall::Start() {
  Request request;
  if (absl::Status status = MakeStream(&request); !status.ok()) return Refuse(status);

  const std::shared_ptr<TokenStream> stream = stream_;
  const RequestId id = request.id;
  if (absl::Status status = environment_->engine->Submit(std::move(request), stream); !status.ok()) {
    stream->OnFailed(std::move(status));
  }
  // What ended the stream before the submission, an Abort or the client that left, found nothing to cancel in the
  // engine.
  if (IsCancelled()) stream->Close();
  if (stream->has_ended()) environment_->engine->Cancel(id, FinishReason::kCancelled);
}

bool GenerateCall::IsCancelled() {
  std::lock_guard lock(mutex_);
  return is_cancelled_;
}

absl::Status GenerateCall::MakeStream(Request* request) {
  const std::shared_ptr<const ServedModel> model = environment_->engine->model();
  if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
  auto valid = ValidateGenerate(request_, *model, environment_->limits, environment_->random->Next());
  if (!valid.ok()) return valid.status();

  std::string name = request_.request_id();
  if (name.empty()) name = absl::StrFormat("%016x", environment_->random->Next());
  valid->request.id = RequestId(environment_->next_request_id++);
  valid->request.arrival_us = environment_->clock->NowMicros();
  valid->request.deadline_us = DeadlineMicros();
  if (valid->request.beam.has_value() && !valid->output.stop.empty()) {
    std::shared_ptr<const Tokenizer> tokenizer(model, model->tokenizer.get());
    valid->request.beam_stop =
        std::make_shared<StopStringCondition>(std::move(tokenizer), valid->request.prompt, valid->output);
  }

  TokenStream::Environment stream_environment{
      environment_->engine,
      [threads = environment_->output_threads](std::function<void()> job) { threads->Schedule(std::move(job)); },
      [registry = environment_->registry, name] { registry->Remove(name); }, environment_->max_outbox_tokens};
  auto stream = std::make_shared<TokenStream>(std::move(stream_environment), valid->request.id,
                                              ResponseSet(model, name, *valid), this);
  QUIRE_RETURN_IF_ERROR(environment_->registry->Add(name, stream));
  *request = std::move(valid->request);
  std::lock_guard lock(mutex_);
  stream_ = std::move(stream);
  return absl::OkStatus();
}

// The client's deadline, which gRPC keeps in wall-clock time, on the engine's clock.
int64_t GenerateCall::DeadlineMicros() const {
  const auto deadline = context_->deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::numeric_limits<int64_t>::max();
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline - std::chrono::system_clock::now());
  return environment_->clock->NowMicros() + left.count();
}

void GenerateCall::Refuse(const absl::Status& status) {
  EndCall(nullptr, status);
}

void GenerateCall::WriteResponse(const v1::GenerateResponse* response) {
  write_ = ToBytes(*response);
  StartWrite(&write_);
}

// The alarm does not keep the call alive, for the call owns the alarm.
void GenerateCall::LimitWrite() {
  write_alarm_.Set(absl::ToChronoTime(absl::Now() + environment_->last_write_timeout),
                   [weak = weak_from_this()](bool /*is_due*/) {
                     if (const std::shared_ptr<GenerateCall> call = weak.lock()) call->CancelUnlessOver();
                   });
}

void GenerateCall::CancelUnlessOver() {
  std::lock_guard lock(end_mutex_);
  if (!is_over_) context_->TryCancel();
}

void GenerateCall::EndCall(const v1::GenerateResponse* response, const absl::Status& status) {
  {
    std::lock_guard lock(end_mutex_);
    is_over_ = true;
  }
  const grpc::Status wire = ToGrpcStatus(status, context_);
  environment_->counts->Count(RpcMethod::kGenerate, wire.error_code());
  if (response == nullptr) return Finish(wire);
  write_ = ToBytes(*response);
  StartWriteAndFinish(&write_, grpc::WriteOptions(), wire);
}

void GenerateCall::OnCancel() {
  std::shared_ptr<TokenStream> stream;
  {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    stream = stream_;
  }
  if (stream != nullptr) stream->Close();
}

}  // namespace quire
