// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/batch_call.h"

#include <algorithm>
#include <utility>

#include "client/library/client.h"

namespace quire {

google::rpc::Status SilentError() {
  google::rpc::Status status;
  status.set_code(grpc::StatusCode::UNAVAILABLE);
  status.set_message("the manager does not answer, and another one leads");
  return status;
}

std::shared_ptr<BatchCall> BatchCall::Start(v1::InferenceService::Stub* stub, const std::string& authorization,
                                            Executor executor, std::function<void(BatchCall* call)> ended,
                                            std::shared_ptr<void> pending) {
  std::shared_ptr<BatchCall> call(new BatchCall(std::move(executor), std::move(ended)));
  call->self_ = call;
  call->pending_ = std::move(pending);
  if (!authorization.empty()) call->context_.AddMetadata("authorization", authorization);
  stub->async()->GenerateBatch(&call->context_, &call->reactor_);
  call->reactor_.AddHold();  // Until the stream has ended, because other threads than gRPC's start reads and writes.
  call->reactor_.StartRead(&call->response_);
  call->reactor_.StartCall();
  return call;
}

void BatchCall::Send(std::shared_ptr<const v1::GenerateBatchRequest> message, EntryHandler handler) {
  running_[message->tag()] = {.handler = std::move(handler)};
  unsent_.push_back(std::move(message));
  Write();
}

void BatchCall::Cancel(uint64_t tag) {
  if (running_.erase(tag) == 0 || is_over_) return;
  const auto unsent = std::find_if(unsent_.begin() + (is_writing_ ? 1 : 0), unsent_.end(),
                                   [tag](const auto& message) { return message->tag() == tag; });
  if (unsent != unsent_.end()) {
    unsent_.erase(unsent);
    return;
  }
  const auto message = std::make_shared<v1::GenerateBatchRequest>();
  message->set_tag(tag);
  message->mutable_cancel();
  unsent_.push_back(message);
  cancelled_.insert(tag);
  Write();
}

void BatchCall::Write() {
  if (is_writing_ || is_over_ || unsent_.empty()) return;
  is_writing_ = true;
  reactor_.StartWrite(unsent_.front().get());
}

void BatchCall::Post(void (BatchCall::*event)()) {
  executor_([self = self_, event] { (self.get()->*event)(); });
}

void BatchCall::Abandon() {
  running_.clear();
  End();
  if (!std::exchange(is_over_, true)) reactor_.RemoveHold();
}

void BatchCall::PostEnd(const grpc::Status& status) {
  // The reactor lives in this object, so the last reference is dropped on the other thread, after this function, or
  // here when the executor runs nothing any more.
  const Executor executor = executor_;
  const std::shared_ptr<void> pending = std::move(pending_);
  executor([self = std::exchange(self_, nullptr), end = RpcStatusOf(status)] { self->OnEnd(end); });
}

void BatchCall::OnRead() {
  const auto is_first = [this](const v1::GenerateBatchEntry* entry) {
    const auto found = running_.find(entry->tag());
    return found != running_.end() && !found->second.has_begun;
  };
  auto* const entries = response_.mutable_entries();
  std::stable_partition(entries->pointer_begin(), entries->pointer_end(), is_first);
  next_entry_ = 0;
  HandleEntries();
}

void BatchCall::HandleEntries() {
  int work = 0;
  while (next_entry_ < response_.entries_size() && work < kMaxEntriesAtOnce) {
    const v1::GenerateBatchEntry& entry = response_.entries(next_entry_++);
    work += 1 + (entry.response().prompt_logprobs_size() + entry.response().logprobs_size()) / kPositionsPerEntry;
    const auto found = running_.find(entry.tag());
    if (found == running_.end()) {  // It was cancelled.
      if (entry.has_end()) cancelled_.erase(entry.tag());
      continue;
    }
    found->second.has_begun = true;
    if (entry.has_end()) {
      const EntryHandler handler = std::move(found->second.handler);
      running_.erase(found);
      handler(entry);
    } else {
      const EntryHandler handler = found->second.handler;  // It may cancel its request.
      handler(entry);
    }
  }
  if (next_entry_ < response_.entries_size()) return Post(&BatchCall::HandleEntries);
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
  if (is_given_up_) *entry.mutable_end() = SilentError();
  ended_(this);
  const auto requests = std::exchange(running_, {});
  for (const auto& [tag, request] : requests) {
    entry.set_tag(tag);
    request.handler(entry);
  }
}

}  // namespace quire
