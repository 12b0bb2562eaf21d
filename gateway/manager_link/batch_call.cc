#include "gateway/manager_link/batch_call.h"

#include <utility>

#include "client/library/call_status.h"

namespace quire {

std::shared_ptr<BatchCall> BatchCall::Start(v1::InferenceService::Stub* stub, const std::string& authorization,
                                            Executor executor, std::function<void(BatchCall* call)> ended) {
  std::shared_ptr<BatchCall> call(new BatchCall(std::move(executor), std::move(ended)));
  call->self_ = call;
  if (!authorization.empty()) call->context_.AddMetadata("authorization", authorization);
  stub->async()->GenerateBatch(&call->context_, &call->reactor_);
  call->reactor_.AddHold();  // Until the stream has ended, because other threads than gRPC's start reads and writes.
  call->reactor_.StartRead(&call->response_);
  call->reactor_.StartCall();
  return call;
}

void BatchCall::Send(v1::GenerateBatchRequest message, EntryHandler handler) {
  handlers_[message.tag()] = std::move(handler);
  unsent_.push_back(std::move(message));
  Write();
}

void BatchCall::Cancel(uint64_t tag) {
  if (handlers_.erase(tag) == 0 || is_over_) return;
  v1::GenerateBatchRequest message;
  message.set_tag(tag);
  message.mutable_cancel();
  unsent_.push_back(std::move(message));
  Write();
}

void BatchCall::Write() {
  if (is_writing_ || is_over_ || unsent_.empty()) return;
  is_writing_ = true;
  reactor_.StartWrite(&unsent_.front());
}

void BatchCall::Post(void (BatchCall::*event)()) {
  executor_([self = self_, event] { (self.get()->*event)(); });
}

void BatchCall::PostEnd(const grpc::Status& status) {
  // The reactor lives in this object, so the last reference must go on the other thread, after this function.
  executor_([self = std::exchange(self_, nullptr), end = RpcStatusOf(status)] { self->OnEnd(end); });
}

void BatchCall::OnRead() {
  for (const v1::GenerateBatchEntry& entry : response_.entries()) {
    const auto found = handlers_.find(entry.tag());
    if (found == handlers_.end()) continue;  // It was cancelled.
    if (entry.has_end()) {
      const EntryHandler handler = std::move(found->second);
      handlers_.erase(found);
      handler(entry);
    } else {
      const EntryHandler handler = found->second;  // It may cancel its request.
      handler(entry);
    }
  }
  if (!is_over_) reactor_.StartRead(&response_);
}

void BatchCall::OnStreamEnd() {
  is_over_ = true;
  reactor_.RemoveHold();
}

void BatchCall::OnWritten() {
  unsent_.pop_front();
  is_writing_ = false;
  Write();
}

void BatchCall::OnEnd(const google::rpc::Status& status) {
  is_over_ = true;
  v1::GenerateBatchEntry entry;
  *entry.mutable_end() = status;
  if (status.code() == 0) {  // The manager ends the stream only when every request has ended.
    entry.mutable_end()->set_code(grpc::StatusCode::UNAVAILABLE);
    entry.mutable_end()->set_message("the manager has ended the connection");
  }
  ended_(this);
  const auto handlers = std::exchange(handlers_, {});
  for (const auto& [tag, handler] : handlers) {
    entry.set_tag(tag);
    handler(entry);
  }
}

}  // namespace quire
