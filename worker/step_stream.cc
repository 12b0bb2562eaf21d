// SPDX-License-Identifier: Apache-2.0

#include "worker/step_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/session_loop.h"
#include "worker/stream_status.h"

namespace quire {
namespace {

// The number of answers, without the inventory, that a manager may leave unread. It may have two plans unanswered, so a
// manager that reads its stream stays far below.
constexpr size_t kMaxUnread = 16;

}  // namespace

StepStream::StepStream(SessionLoop* loop) : loop_(loop), sender_(loop->sender()) {}

StepStream* StepStream::Serve(SessionLoop* loop, absl::Duration open_timeout) {
  std::shared_ptr<StepStream> stream(new StepStream(loop));
  stream->self_ = stream;
  // The alarm may ring while the stream is being destroyed, so it holds a weak reference. The destructor of the alarm
  // cancels it.
  const std::weak_ptr<StepStream> waiting = stream;
  stream->open_alarm_.Set(absl::ToChronoTime(absl::Now() + open_timeout), [waiting, open_timeout](bool has_rung) {
    const std::shared_ptr<StepStream> silent = has_rung ? waiting.lock() : nullptr;
    if (silent != nullptr) silent->EndUnlessOpen(open_timeout);
  });
  stream->StartRead(&stream->request_);
  return stream.get();
}

void StepStream::SendOpened(uint64_t epoch, std::vector<v1::InventoryChunk> inventory) {
  {
    const MutexLock lock(&mutex_);
    num_inventory_chunks_ = inventory.size();
  }
  v1::StepsResponse response;
  response.mutable_opened()->set_epoch(epoch);
  response.mutable_opened()->set_inventory_follows(!inventory.empty());
  Send(std::move(response));
  for (v1::InventoryChunk& chunk : inventory) {
    v1::StepsResponse next;
    *next.mutable_inventory() = std::move(chunk);
    Send(std::move(next));
  }
}

void StepStream::SendResult(v1::StepResult result) {
  v1::StepsResponse response;
  *response.mutable_result() = std::move(result);
  {
    const MutexLock lock(&mutex_);
    if (!Queue(std::move(response)) || output_ != Output::kNone) return;
  }
  sender_->Schedule([self = shared_from_this()] {
    const MutexLock lock(&self->mutex_);
    self->WriteNextOrFinish();
  });
}

void StepStream::SendDraining() {
  v1::StepsResponse response;
  response.mutable_draining();
  Send(std::move(response));
}

void StepStream::Send(v1::StepsResponse response) {
  const MutexLock lock(&mutex_);
  if (Queue(std::move(response))) WriteNextOrFinish();
}

bool StepStream::Queue(v1::StepsResponse response) {
  if (phase_ == Phase::kEnding) return false;
  outbox_.push_back(std::move(response));
  if (outbox_.size() <= kMaxUnread + num_inventory_chunks_) return true;
  EndWith(absl::ResourceExhaustedError(
      absl::StrCat(outbox_.size(), " answers are unread, and the limit is ", kMaxUnread + num_inventory_chunks_)));
  return false;
}

void StepStream::End(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  if (phase_ != Phase::kEnding) EndWith(status);
}

void StepStream::EndUnlessOpen(absl::Duration open_timeout) {
  const MutexLock lock(&mutex_);
  if (phase_ != Phase::kExpectsOpen) return;
  EndWith(absl::DeadlineExceededError(
      absl::StrCat("no `open` came within the limit of ", absl::FormatDuration(open_timeout))));
}

void StepStream::EndWith(const absl::Status& status) {
  phase_ = Phase::kEnding;
  end_status_ = ToStreamStatus(status);
  WriteNextOrFinish();
}

void StepStream::WriteNextOrFinish() {
  if (output_ != Output::kNone) return;
  if (!outbox_.empty()) {
    output_ = Output::kWrite;
    StartWrite(&outbox_.front());
  } else if (phase_ == Phase::kEnding) {
    output_ = Output::kFinish;
    Finish(end_status_);
  }
}

void StepStream::OnReadDone(bool ok) {
  if (!ok) {
    loop_->CloseAfterPlans(this);
    return;
  }
  const absl::Status status = Handle(&request_);
  if (!status.ok()) {
    End(status);  // End comes before Leave, so that the stream gets this status and not one from the loop.
    loop_->Leave(this);
    return;
  }
  request_.Clear();
  StartRead(&request_);
}

absl::Status StepStream::Handle(v1::StepsRequest* request) {
  switch (request->message_case()) {
    case v1::StepsRequest::kOpen:
      return HandleOpen(request->open());
    case v1::StepsRequest::kPlan:
      if (ExpectsOpen()) return absl::InvalidArgumentError("the first message of the stream is a plan, not `open`");
      return loop_->Submit(this, std::move(*request->mutable_plan()));
    case v1::StepsRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of the stream is neither `open` nor `plan`");
}

bool StepStream::ExpectsOpen() {
  const MutexLock lock(&mutex_);
  return phase_ == Phase::kExpectsOpen;
}

absl::Status StepStream::HandleOpen(const v1::OpenSession& open) {
  {
    const MutexLock lock(&mutex_);
    if (phase_ == Phase::kOpen) return absl::InvalidArgumentError("a second `open` in one stream");
    // An `open` that arrives too late must not take over from a live session.
    if (phase_ == Phase::kEnding) return absl::DeadlineExceededError("`open` came too late");
    phase_ = Phase::kOpen;
  }
  open_alarm_.Cancel();
  return loop_->Open(self_, open.epoch(), open.adopt(), open.term(),
                     {.failures = open.accepts_failures(), .postponed = open.accepts_postponed()}, open.group());
}

void StepStream::OnWriteDone(bool ok) {
  const MutexLock lock(&mutex_);
  output_ = Output::kNone;
  outbox_.pop_front();
  if (!ok) outbox_.clear();  // The stream is broken; OnCancel ends it.
  WriteNextOrFinish();
}

void StepStream::OnCancel() {
  {
    const MutexLock lock(&mutex_);
    if (output_ == Output::kWrite) {
      outbox_.resize(1);  // The write that is under way fails by itself.
    } else {
      outbox_.clear();
    }
  }
  End(absl::CancelledError("the stream was cancelled"));
  loop_->Leave(this);
}

void StepStream::OnDone() {
  loop_->Leave(this);
  self_.reset();
}

}  // namespace quire
