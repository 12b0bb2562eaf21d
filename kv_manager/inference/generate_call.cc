// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/generate_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kv_manager/inference/call_metadata.h"
#include "kv_manager/requests/guide_validation.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"
#include "security/authorizer.h"

namespace quire {

GenerateCall::GenerateCall(RequestEnvironment* environment, RpcMethod method, grpc::CallbackServerContext* context)
    : ReceivedCall(&environment->receiving, context), environment_(environment), method_(method), canceller_(context) {}

GenerateCall* GenerateCall::New(RequestEnvironment* environment, RpcMethod method,
                                grpc::CallbackServerContext* context) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(environment, method, context));
  call->self_ = call;
  call->Receive();
  return call.get();
}

template <typename Request>
absl::Status GenerateCall::MakeRequest(const grpc::ByteBuffer& bytes, size_t* num_bytes) {
  Request request;
  absl::Status status = FromBytes(bytes, &request);
  const absl::StatusOr<std::optional<Caller>> caller = CallerOf(*context(), environment_->options.tokens.get());
  if (status.ok()) status = caller.status();
  if (status.ok()) {
    owner_ = OwnerOf(*caller);
    *num_bytes = TextWork(request) + GuideWork(request, *caller, environment_->guides);
  }
  request_ = std::make_unique<ClientRequest>(
      environment_, caller.value_or(std::nullopt), TraceParentOf(*context()), std::move(request), this,
      [threads = &environment_->text_threads](auto job) { threads->RunOutput(std::move(job)); });
  return status;
}

void GenerateCall::OnRequest(const grpc::ByteBuffer& bytes) {
  size_t num_bytes = 0;
  absl::Status status = method_ == RpcMethod::kResume ? MakeRequest<v1::ResumeRequest>(bytes, &num_bytes)
                                                      : MakeRequest<v1::GenerateRequest>(bytes, &num_bytes);
  started_ = request_.get();
  // OnCancel may have come before.
  if (context()->IsCancelled()) request_->Leave();
  if (status.ok()) {
    status = environment_->text_threads.RunInput(owner_, num_bytes, [call = shared_from_this()] {
      call->request_->Start(DeadlineMicros(*call->context(), *call->environment_->clock));
    });
  }
  if (!status.ok()) EndCall(nullptr, status);
}

void GenerateCall::OnCancel() {
  if (ClientRequest* const request = started_) request->Leave();
}

void GenerateCall::AddInitialMetadata() {
  if (std::exchange(has_initial_metadata_, true)) return;
  context()->AddInitialMetadata(kTraceparentKey, Traceparent(request_->span()));
}

void GenerateCall::WriteResponse(const v1::GenerateResponse* response) {
  AddInitialMetadata();
  {
    const MutexLock lock(&mutex_);
    is_writing_ = true;
  }
  SetWrite(*response);
  StartWrite(&write_);
}

// The stream keeps the response until it is written, and a response with logprobs takes several times its bytes.
void GenerateCall::SetWrite(const v1::GenerateResponse& response) {
  write_ = ToBytes(response);
  const auto num_bytes = static_cast<int64_t>(write_.Length());
  if (num_bytes <= AnswerWatch::kSmallBytes) return;
  answer_id_ =
      environment_->answers.Begin(context()->peer(), num_bytes + static_cast<int64_t>(response.SpaceUsedLong()),
                                  AnswerWatch::Wait::kUnlimited, [weak = weak_from_this()] {
                                    if (const std::shared_ptr<GenerateCall> call = weak.lock())
                                      call->canceller_.TryCancel();
                                  });
}

void GenerateCall::OnWriteDone(bool ok) {
  if (answer_id_ != 0) environment_->answers.End(std::exchange(answer_id_, 0));
  std::optional<grpc::Status> end;
  {
    const MutexLock lock(&mutex_);
    is_writing_ = false;
    end = end_;
  }
  if (end.has_value()) return Finish(*end);
  request_->OnWritten(ok);
}

// The alarm does not keep the call alive, because the call owns the alarm.
void GenerateCall::LimitWrite() {
  if (is_limited_.exchange(true)) return;
  write_alarm_.Set(absl::ToChronoTime(absl::Now() + environment_->options.last_write_timeout),
                   [weak = weak_from_this()](bool /*is_due*/) {
                     if (const std::shared_ptr<GenerateCall> call = weak.lock()) call->canceller_.TryCancel();
                   });
}

void GenerateCall::EndCall(const v1::GenerateResponse* response, const absl::Status& status) {
  const grpc::Status wire = ToGrpcStatus(status, context());
  environment_->counts.Count(method_, status.code());
  if (response != nullptr) {
    AddInitialMetadata();
    LimitWrite();
    SetWrite(*response);
    return StartWriteAndFinish(&write_, grpc::WriteOptions(), wire);
  }
  {
    const MutexLock lock(&mutex_);
    if (is_writing_) {
      LimitWrite();
      end_ = wire;
      return;
    }
  }
  Finish(wire);
}

}  // namespace quire
