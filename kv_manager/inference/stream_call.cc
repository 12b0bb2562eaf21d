// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/stream_call.h"

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

StreamCall::StreamCall(RequestEnvironment* environment, RpcMethod method, grpc::CallbackServerContext* context)
    : ReceivedCall(&environment->receiving, context), environment_(environment), method_(method), canceller_(context) {}

StreamCall* StreamCall::New(RequestEnvironment* environment, RpcMethod method, grpc::CallbackServerContext* context) {
  std::shared_ptr<StreamCall> call(new StreamCall(environment, method, context));
  call->self_ = call;
  call->Receive();
  return call.get();
}

void StreamCall::OnRequest(const grpc::ByteBuffer& bytes) {
  absl::StatusOr<std::optional<Caller>> caller = CallerOf(*context(), environment_->options.tokens.get());
  if (!caller.ok()) return EndCall(nullptr, caller.status());
  caller_ = *std::move(caller);
  const auto begin = [call = shared_from_this(), bytes] {
    call->method_ == RpcMethod::kResume ? call->Begin<v1::ResumeRequest>(bytes)
                                        : call->Begin<v1::GenerateRequest>(bytes);
  };
  const absl::Status status = environment_->text_threads.RunParse(OwnerOf(caller_), bytes.Length(), begin);
  if (!status.ok()) EndCall(nullptr, status);
}

template <typename Request>
void StreamCall::Begin(const grpc::ByteBuffer& bytes) {
  Request message;
  if (const absl::Status parsed = FromBytes(bytes, &message); !parsed.ok()) return EndCall(nullptr, parsed);
  const size_t work = TextWork(message) + GuideWork(message, caller_, environment_->guides);
  request_ = std::make_unique<ClientRequest>(
      environment_, caller_, TraceParentOf(*context()), std::move(message), this,
      [threads = &environment_->text_threads](auto job) { threads->RunOutput(std::move(job)); });
  started_ = request_.get();
  // OnCancel may have come before.
  if (context()->IsCancelled()) request_->Leave();
  // A very long message has been waited for, and counted, already.
  if (bytes.Length() >= kVeryLongTextBytes) return Start();
  const absl::Status status =
      environment_->text_threads.RunInput(OwnerOf(caller_), work, [call = shared_from_this()] { call->Start(); });
  if (!status.ok()) EndCall(nullptr, status);
}

void StreamCall::Start() {
  request_->Start(DeadlineMicros(*context(), *environment_->clock));
}

void StreamCall::OnCancel() {
  if (ClientRequest* const request = started_) request->Leave();
}

void StreamCall::AddInitialMetadata() {
  if (std::exchange(has_initial_metadata_, true)) return;
  context()->AddInitialMetadata(kTraceparentKey, Traceparent(request_->span()));
}

void StreamCall::WriteResponse(const v1::GenerateResponse* response) {
  AddInitialMetadata();
  {
    const MutexLock lock(&mutex_);
    is_writing_ = true;
  }
  SetWrite(*response);
  StartWrite(&write_);
}

// The stream keeps the response until it is written, and a response with logprobs takes several times its bytes.
void StreamCall::SetWrite(const v1::GenerateResponse& response) {
  write_ = ToBytes(response);
  const auto num_bytes = static_cast<int64_t>(write_.Length());
  if (num_bytes <= AnswerWatch::kSmallBytes) return;
  answer_id_ =
      environment_->answers.Begin(context()->peer(), num_bytes + static_cast<int64_t>(response.SpaceUsedLong()),
                                  AnswerWatch::Wait::kUnlimited, [weak = weak_from_this()] {
                                    if (const std::shared_ptr<StreamCall> call = weak.lock())
                                      call->canceller_.TryCancel();
                                  });
}

void StreamCall::OnWriteDone(bool ok) {
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
void StreamCall::LimitWrite() {
  if (is_limited_.exchange(true)) return;
  write_alarm_.Set(absl::ToChronoTime(absl::Now() + environment_->options.last_write_timeout),
                   [weak = weak_from_this()](bool /*is_due*/) {
                     if (const std::shared_ptr<StreamCall> call = weak.lock()) call->canceller_.TryCancel();
                   });
}

void StreamCall::EndCall(const v1::GenerateResponse* response, const absl::Status& status) {
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
