// SPDX-License-Identifier: Apache-2.0

#include "client/library/generate_streams.h"

#include <chrono>
#include <thread>
#include <utility>

#include "base/check.h"
#include "grpcpp/alarm.h"

namespace quire {

// A stream and what is under way for it. It is used by one thread at a time, apart from Cancel: first by Start, then by
// Next, and by the waiter while no event can come.
struct GenerateStreams::Call {
  // The operation whose end is the next event.
  enum class Phase {
    kStart,  // Nothing is under way. An alarm tells Next to start the first call.
    kCall,
    kRead,
    kFinish,
    kEnd,  // Nothing is under way. An alarm tells Next of the end.
  };

  Call(GenerateStreams* streams, uint64_t tag, const v1::GenerateRequest& request, absl::Duration timeout)
      : tag(tag), stream(streams->links_, request, timeout, &streams->queue_, this) {}
  ~Call() { Join(); }

  void Join() {
    if (waiter.joinable()) waiter.join();
  }

  const uint64_t tag;
  GenerateStream stream;
  Phase phase = Phase::kCall;
  v1::GenerateResponse response;  // The one that is being read.
  grpc::Status status;            // The one with which the call of the stream has ended.
  grpc::Alarm start_alarm;
  grpc::Alarm end_alarm;
  std::thread waiter;  // Starts a call that may have to wait. Only Next starts and joins it.
};

GenerateStreams::GenerateStreams(ManagerLinks* links) : links_(links) {}

GenerateStreams::~GenerateStreams() {
  HalfClose();
  CancelAll();
  Event event;
  while (Next(&event)) continue;
}

void GenerateStreams::Start(uint64_t tag, const v1::GenerateRequest& request, absl::Duration timeout) {
  auto added = std::make_unique<Call>(this, tag, request, timeout);
  Call* const call = added.get();
  {
    const MutexLock lock(&mutex_);
    QUIRE_CHECK(!has_half_closed_);
    QUIRE_CHECK(calls_.emplace(tag, std::move(added)).second) << tag;
  }
  // A search for the manager that leads may take seconds.
  const bool may_wait =
      links_->size() > 1 && links_->current().channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY;
  if (may_wait) {
    call->phase = Call::Phase::kStart;
    call->start_alarm.Set(&queue_, std::chrono::system_clock::now(), call);
  } else {
    Begin(call);
  }
}

void GenerateStreams::Begin(Call* call) {
  if (call->stream.finished_.has_value()) return TellEnd(call);
  call->phase = Call::Phase::kCall;
  call->stream.Call();
}

void GenerateStreams::HalfClose() {
  const MutexLock lock(&mutex_);
  has_half_closed_ = true;
  ShutDownIfOver();
}

void GenerateStreams::ShutDownIfOver() {
  if (has_half_closed_ && calls_.empty() && !std::exchange(is_shut_down_, true)) queue_.Shutdown();
}

bool GenerateStreams::Next(Event* event) {
  void* tag;
  bool ok;
  while (queue_.Next(&tag, &ok)) {
    if (Handle(static_cast<Call*>(tag), ok, event)) return true;
  }
  return false;
}

bool GenerateStreams::Handle(Call* call, bool ok, Event* event) {
  GenerateStream& stream = call->stream;
  switch (call->phase) {
    case Call::Phase::kStart:
      call->waiter = std::thread([this, call] { Begin(call); });
      return false;
    case Call::Phase::kCall:
      call->Join();
      if (!ok) {
        Finish(call);
        return false;
      }
      call->phase = Call::Phase::kRead;
      stream.queued_reader_->Read(&call->response, call);
      return false;
    case Call::Phase::kRead:
      if (!ok || !stream.Take(call->response)) {
        if (ok) stream.Cancel();
        Finish(call);
        return false;
      }
      event->tag = call->tag;
      event->response.Swap(&call->response);
      event->end.reset();
      stream.queued_reader_->Read(&call->response, call);
      return true;
    case Call::Phase::kFinish:
      if (stream.Decide(call->status)) {
        call->waiter = std::thread([this, call] { Continue(call); });
      } else {
        Continue(call);
      }
      return false;
    case Call::Phase::kEnd:
      End(call, event);
      return true;
  }
  return false;
}

void GenerateStreams::Finish(Call* call) {
  call->phase = Call::Phase::kFinish;
  call->stream.queued_reader_->Finish(&call->status, call);
}

void GenerateStreams::Continue(Call* call) {
  if (call->stream.Continues()) {
    Begin(call);
  } else {
    TellEnd(call);
  }
}

void GenerateStreams::TellEnd(Call* call) {
  call->phase = Call::Phase::kEnd;
  call->end_alarm.Set(&queue_, std::chrono::system_clock::now(), call);
}

void GenerateStreams::End(Call* call, Event* event) {
  call->Join();
  event->tag = call->tag;
  event->response.Clear();
  event->end = *call->stream.finished_;
  std::unique_ptr<Call> ended;
  const MutexLock lock(&mutex_);
  const auto it = calls_.find(call->tag);
  ended = std::move(it->second);
  calls_.erase(it);
  ShutDownIfOver();
}

void GenerateStreams::Cancel(uint64_t tag) {
  const MutexLock lock(&mutex_);
  if (const auto it = calls_.find(tag); it != calls_.end()) it->second->stream.Cancel();
}

void GenerateStreams::CancelAll() {
  const MutexLock lock(&mutex_);
  for (const auto& [tag, call] : calls_) call->stream.Cancel();
}

}  // namespace quire
