#include "worker/step_stream.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "worker/session_loop.h"

namespace quire {
namespace {

// The number of answers that a manager may leave unread. It may have two plans unanswered, so a manager that reads its
// stream stays far below.
constexpr size_t kMaxUnread = 16;

grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

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

void StepStream::SendOpened(uint64_t epoch) {
  v1::StepsResponse response;
  response.mutable_opened()->set_epoch(epoch);
  Send(std::move(response));
}

void StepStream::SendResult(v1::StepResult result) {
  v1::StepsResponse response;
  *response.mutable_result() = std::move(result);
  Send(std::move(response));
}

void StepStream::SendDraining() {
  v1::StepsResponse response;
  response.mutable_draining();
  Send(std::move(response));
}

void StepStream::Send(v1::StepsResponse response) {
  const MutexLock lock(&mutex_);
  if (is_ending_) return;
  outbox_.push_back(std::move(response));
  if (outbox_.size() > kMaxUnread) {
    is_ending_ = true;
    end_status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                               absl::StrCat(outbox_.size(), " answers are unread, the limit is ", kMaxUnread));
  }
  WriteNextOrFinish();
}

void StepStream::End(const absl::Status& status) {
  const MutexLock lock(&mutex_);
  if (is_ending_) return;
  is_ending_ = true;
  end_status_ = ToGrpc(status);
  WriteNextOrFinish();
}

void StepStream::EndUnlessOpen(absl::Duration open_timeout) {
  const MutexLock lock(&mutex_);
  if (is_open_ || is_ending_) return;
  is_ending_ = true;
  end_status_ = ToGrpc(absl::DeadlineExceededError(
      absl::StrCat("no `open` came within ", absl::FormatDuration(open_timeout), ", the limit")));
  WriteNextOrFinish();
}

void StepStream::WriteNextOrFinish() {
  if (is_writing_ || is_finished_) return;
  if (!outbox_.empty()) {
    is_writing_ = true;
    StartWrite(&outbox_.front());
  } else if (is_ending_) {
    is_finished_ = true;
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
      return HandleOpen(request->open().epoch());
    case v1::StepsRequest::kPlan:
      if (!IsOpen()) return absl::InvalidArgumentError("the first message of the stream is a plan, not `open`");
      return loop_->Submit(this, std::move(*request->mutable_plan()));
    case v1::StepsRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of the stream is neither `open` nor `plan`");
}

bool StepStream::IsOpen() {
  const MutexLock lock(&mutex_);
  return is_open_;
}

absl::Status StepStream::HandleOpen(uint64_t epoch) {
  {
    const MutexLock lock(&mutex_);
    if (is_open_) return absl::InvalidArgumentError("a second `open` in one stream");
    // An `open` that arrives too late must not take over from a live session.
    if (is_ending_) return absl::DeadlineExceededError("`open` came too late");
    is_open_ = true;
  }
  open_alarm_.Cancel();
  return loop_->Open(self_, epoch);
}

void StepStream::OnWriteDone(bool ok) {
  const MutexLock lock(&mutex_);
  is_writing_ = false;
  outbox_.pop_front();
  if (!ok) outbox_.clear();  // The stream is broken; OnCancel ends it.
  WriteNextOrFinish();
}

void StepStream::OnCancel() {
  {
    const MutexLock lock(&mutex_);
    if (is_writing_) {
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
