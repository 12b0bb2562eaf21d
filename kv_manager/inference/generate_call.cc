#include "kv_manager/inference/generate_call.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kv_manager/inference/call_metadata.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"
#include "security/authorizer.h"

namespace quire {

GenerateCall::GenerateCall(RequestEnvironment* environment, grpc::CallbackServerContext* context,
                           v1::GenerateRequest request)
    : environment_(environment),
      context_(context),
      canceller_(context),
      request_(environment, CallerOf(*context, environment->options.tokens.get()), TraceParentOf(*context),
               std::move(request), this,
               [threads = &environment->text_threads](auto job) { threads->RunOutput(std::move(job)); }) {}

std::shared_ptr<GenerateCall> GenerateCall::New(RequestEnvironment* environment, grpc::CallbackServerContext* context,
                                                v1::GenerateRequest request) {
  std::shared_ptr<GenerateCall> call(new GenerateCall(environment, context, std::move(request)));
  call->self_ = call;
  return call;
}

void GenerateCall::Start() {
  request_.Start(DeadlineMicros(*context_, *environment_->clock));
}

void GenerateCall::Refuse(const absl::Status& status) {
  EndCall(nullptr, status);
}

void GenerateCall::AddInitialMetadata() {
  if (std::exchange(has_initial_metadata_, true)) return;
  context_->AddInitialMetadata(kTraceparentKey, Traceparent(request_.span()));
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
  const grpc::Status wire = ToGrpcStatus(status, context_);
  environment_->counts.Count(RpcMethod::kGenerate, status.code());
  if (response == nullptr) return Finish(wire);
  AddInitialMetadata();
  LimitWrite();
  write_ = ToBytes(*response);
  StartWriteAndFinish(&write_, grpc::WriteOptions(), wire);
}

}  // namespace quire
