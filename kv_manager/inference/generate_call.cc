#include "kv_manager/inference/generate_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kv_manager/inference/call_metadata.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"
#include "security/authorizer.h"

namespace quire {

GenerateCall::GenerateCall(RequestEnvironment* environment, grpc::CallbackServerContext* context)
    : ReceivedCall(&environment->receiving, context), environment_(environment), canceller_(context) {}

GenerateCall* GenerateCall::New(RequestEnvironment* environment, grpc::CallbackServerContext* context) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(environment, context));
  call->self_ = call;
  call->Receive();
  return call.get();
}

void GenerateCall::OnRequest(const grpc::ByteBuffer& bytes) {
  v1::GenerateRequest request;
  absl::Status status = FromBytes(bytes, &request);
  const size_t num_bytes = TextWork(request);
  request_ = std::make_unique<ClientRequest>(
      environment_, CallerOf(*context(), environment_->options.tokens.get()), TraceParentOf(*context()),
      std::move(request), this,
      [threads = &environment_->text_threads](auto job) { threads->RunOutput(std::move(job)); });
  started_ = request_.get();
  // OnCancel may have come before.
  if (context()->IsCancelled()) request_->Cancel();
  if (status.ok()) {
    status = environment_->text_threads.RunInput(num_bytes, [call = shared_from_this()] {
      call->request_->Start(DeadlineMicros(*call->context(), *call->environment_->clock));
    });
  }
  if (!status.ok()) EndCall(nullptr, status);
}

void GenerateCall::OnCancel() {
  if (ClientRequest* const request = started_) request->Cancel();
}

void GenerateCall::AddInitialMetadata() {
  if (std::exchange(has_initial_metadata_, true)) return;
  context()->AddInitialMetadata(kTraceparentKey, Traceparent(request_->span()));
}

void GenerateCall::WriteResponse(const v1::GenerateResponse* response) {
  AddInitialMetadata();
  write_ = ToBytes(*response);
  StartWrite(&write_);
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
  environment_->counts.Count(RpcMethod::kGenerate, status.code());
  if (response == nullptr) return Finish(wire);
  AddInitialMetadata();
  LimitWrite();
  write_ = ToBytes(*response);
  StartWriteAndFinish(&write_, grpc::WriteOptions(), wire);
}

}  // namespace quire
