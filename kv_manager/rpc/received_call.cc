// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/received_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/impl/codegen/rpc_service_method.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"

namespace quire {
namespace {

// A call that ends before its request is read.
class RefusedCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedCall(const grpc::Status& status) { Finish(status); }

  // gRPC calls it.
  void OnDone() override { delete this; }
};

}  // namespace

std::optional<int64_t> ReceivedBytes(bool ok, const grpc::ByteBuffer& message) {
  return ok ? std::optional<int64_t>(message.Length()) : std::nullopt;
}

void ReceivedCall::Receive() {
  id_ = watch_->Begin(context_->peer(), ReceiveWatch::Wait::kLimited,
                      [this](const absl::Status& status) { OnNoRequest(status); });
  StartRead(&request_);
}

void ReceivedCall::OnReadDone(bool ok) {
  if (!watch_->End(id_, ReceivedBytes(ok, request_))) return;
  if (!ok && context_->IsCancelled()) return OnNoRequest(absl::CancelledError("the call ended before its request"));
  if (!ok) return OnNoRequest(absl::InvalidArgumentError("the call has no request"));
  grpc::ByteBuffer request;  // Large, and the call may wait long.
  request.Swap(&request_);
  OnRequest(request);
}

void UnaryCall::FinishWithError(const absl::Status& status) {
  Finish(ToGrpcStatus(status, context()));
}

void UnaryCall::FinishWith(const google::protobuf::Message& response) {
  response_ = ToBytes(response);
  if (const auto num_bytes = static_cast<int64_t>(response_.Length()); num_bytes > AnswerWatch::kSmallBytes) {
    answer_id_ = answers_->Begin(context()->peer(), num_bytes, AnswerWatch::Wait::kLimited,
                                 [canceller = canceller_] { canceller->TryCancel(); });
  }
  StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
}

void UnaryCall::OnDone() {
  canceller_->OnDone();
  if (answer_id_ != 0) answers_->End(answer_id_);
  delete this;
}

void UnaryCall::SetOnCancel(std::function<void()> on_cancel) {
  {
    const MutexLock lock(&mutex_);
    if (!is_cancelled_) {
      on_cancel_ = std::move(on_cancel);
      return;
    }
  }
  on_cancel();
}

void UnaryCall::OnCancel() {
  std::function<void()> on_cancel;
  {
    const MutexLock lock(&mutex_);
    is_cancelled_ = true;
    on_cancel.swap(on_cancel_);
  }
  if (on_cancel) on_cancel();
}

void ReceivingService::AddUnary(absl::string_view method, UnaryCall::Handler handler) {
  handlers_.push_back(std::move(handler));
  AddStream(method, [this, handler = &handlers_.back()](grpc::CallbackServerContext* context) {
    auto* const call = new UnaryCall(watch_, answers_, context, handler);
    call->Receive();
    return call;
  });
}

void ReceivingService::AddStream(absl::string_view method,
                                 std::function<Reactor*(grpc::CallbackServerContext*)> start) {
  using grpc::internal::CallbackBidiHandler;
  using grpc::internal::RpcMethod;
  using grpc::internal::RpcServiceMethod;
  names_.push_back(absl::StrCat("/", full_name_, "/", method));
  AddMethod(new RpcServiceMethod(names_.back().c_str(), RpcMethod::BIDI_STREAMING, nullptr));
  const auto start_if_open = [this, start = std::move(start)](grpc::CallbackServerContext* context) -> Reactor* {
    const absl::Status open = gate_();
    return open.ok() ? start(context) : new RefusedCall(ToGrpcStatus(open, context));
  };
  MarkMethodCallback(num_methods_++, new CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(start_if_open));
}

}  // namespace quire
