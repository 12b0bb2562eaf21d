// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/generate_batch_call.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_reason.h"
#include "kv_manager/inference/call_metadata.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/guide_validation.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/requests/unknown_fields.h"
#include "kv_manager/rpc/grpc_status.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/received_call.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/authorizer.h"

namespace quire {
namespace {

absl::Status TagRunning(uint64_t tag) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("tag: request ", tag, " of the stream is still running")),
                    "TAG_RUNNING");
}

absl::Status TooManyRequests(size_t limit) {
  return WithRetryDelay(WithReason(absl::ResourceExhaustedError(
                                       absl::StrCat(limit, " requests of the stream are running, and the limit is ",
                                                    limit, " (--max-batch-requests)")),
                                   "TOO_MANY_BATCH_REQUESTS", {{"max_batch_requests", absl::StrCat(limit)}}),
                        /*delay_ms=*/500);
}

absl::Status NoTag() {
  FieldErrors errors;
  errors.Add("tag", "is 0, must be at least 1");
  return errors.ToStatus();
}

// Checks the message without the request that it starts, which ValidateGenerate checks.
absl::Status CheckEnvelope(const v1::GenerateBatchRequest& message) {
  FieldErrors errors;
  CheckUnknownFields(message, "", &errors);
  if (message.action_case() == v1::GenerateBatchRequest::ACTION_NOT_SET) {
    errors.Add("action", "is not set: give start, resume or cancel");
  }
  return errors.empty() ? absl::OkStatus() : errors.ToStatus();
}

v1::GenerateBatchEntry Entry(uint64_t tag, const v1::GenerateResponse* response) {
  v1::GenerateBatchEntry entry;
  entry.set_tag(tag);
  if (response != nullptr) *entry.mutable_response() = *response;
  return entry;
}

}  // namespace

// One request of the call, and the writer of its responses. It keeps the call alive.
class GenerateBatchCall::Member : public ResponseWriter, public std::enable_shared_from_this<Member> {
 public:
  template <typename Request>
  Member(std::shared_ptr<GenerateBatchCall> call, std::optional<Caller> caller,
         const std::optional<TraceParent>& parent, uint64_t tag, Request request)
      : call_(std::move(call)),
        tag_(tag),
        request_(call_->environment_, std::move(caller), parent, std::move(request), this,
                 [call = call_](auto job) { call->RunLater(std::move(job)); }) {}

  void WriteResponse(const v1::GenerateResponse* response) override {
    call_->BeginEntry(/*is_first=*/!std::exchange(has_begun_, true));
    v1::GenerateBatchEntry entry = Entry(tag_, response);
    too_large_ = call_->CheckSize(entry);
    if (too_large_.ok()) return call_->AddResponse(shared_from_this(), std::move(entry));
    // Nobody can read the rest of a stream without this response, so that a resumable request ends as well.
    call_->RunLater([member = shared_from_this()] {
      member->request().Cancel();
      member->request().OnWritten(false);
    });
  }
  void LimitWrite() override { call_->LimitWrites(); }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override {
    const bool is_first = !std::exchange(has_begun_, true);
    if (is_first && !status.ok()) call_->Charge(ClientWork::kLostRequest);
    call_->BeginEntry(is_first);
    v1::GenerateBatchEntry entry = Entry(tag_, response);
    if (too_large_.ok()) too_large_ = call_->CheckSize(entry);
    if (!too_large_.ok()) entry.clear_response();
    call_->End(std::move(entry), too_large_.ok() ? status : too_large_);
  }

  ClientRequest& request() { return request_; }

 private:
  const std::shared_ptr<GenerateBatchCall> call_;
  const uint64_t tag_;
  ClientRequest request_;
  bool has_begun_ = false;  // The client gets something. It is used like too_large_.
  absl::Status too_large_;  // Not OK: a response was too large. Used by the job that writes.
};

GenerateBatchCall::GenerateBatchCall(RequestEnvironment* environment, grpc::CallbackServerContext* context)
    : environment_(environment),
      context_(context),
      peer_(context->peer()),
      parent_(TraceParentOf(*context)),
      canceller_(context),
      packer_(environment->options.max_message_bytes) {}

GenerateBatchCall* GenerateBatchCall::New(RequestEnvironment* environment, grpc::CallbackServerContext* context) {
  std::shared_ptr<GenerateBatchCall> call(new GenerateBatchCall(environment, context));
  call->self_ = call;
  call->Read();
  return call.get();
}

void GenerateBatchCall::Read() {
  read_id_ = environment_->receiving.Begin(peer_, ReceiveWatch::Wait::kUnlimited,
                                           [this](const absl::Status& status) { OnReadEnded(status); });
  StartRead(&read_);
}

void GenerateBatchCall::OnReadEnded(const absl::Status& status) {
  const std::shared_ptr<GenerateBatchCall> self = shared_from_this();  // Without a read the call may end at any time.
  {
    const MutexLock lock(&mutex_);
    status_ = status;
    reading_ = Reading::kOver;
  }
  CancelAll();
}

void GenerateBatchCall::OnReadDone(bool ok) {
  if (!environment_->receiving.End(read_id_, ReceivedBytes(ok, read_))) return;
  if (!ok) return HandleRead(/*ok=*/false);
  environment_->text_threads.RunMessage(Owner(), [self = shared_from_this()] { self->HandleRead(/*ok=*/true); });
}

std::string GenerateBatchCall::Owner() {
  const absl::StatusOr<std::optional<Caller>>& caller = CurrentCaller();
  return caller.ok() ? OwnerOf(*caller) : "";
}

void GenerateBatchCall::HandleRead(bool ok) {
  if (ok) Charge(ClientWork::kMessage);
  const absl::Status status = ok && is_open() ? Handle(read_) : absl::OkStatus();
  read_.Clear();
  bool reads_on;
  {
    const MutexLock lock(&mutex_);
    if (!status.ok()) status_ = status;
    if (!ok || !status.ok() || stage_ != Stage::kOpen) {
      reading_ = Reading::kOver;
    } else if (packer_.num_unread_ends() >= environment_->options.max_batch_requests) {
      reading_ = Reading::kPaused;
    }
    reads_on = reading_ == Reading::kOn;
  }
  if (reads_on) return Read();
  if (!status.ok()) CancelAll();
  FinishIfDone();
}

absl::Status GenerateBatchCall::Handle(const grpc::ByteBuffer& bytes) {
  v1::GenerateBatchRequest message;
  absl::Status status = FromBytes(bytes, &message, "start");
  const uint64_t tag = message.tag();
  if (tag == 0) return status.ok() ? NoTag() : status;

  v1::GenerateRequest request;
  if (message.has_start()) request.Swap(message.mutable_start());
  v1::ResumeRequest resume;
  const bool resumes = message.has_resume();
  if (resumes) resume.Swap(message.mutable_resume());
  if (status.ok()) status = CheckEnvelope(message);
  if (!status.ok()) {
    Refuse(tag, status);
  } else if (message.has_cancel()) {
    Cancel(tag);
  } else if (resumes) {
    Start(tag, std::move(resume), message);
  } else {
    Start(tag, std::move(request), message);
  }
  return absl::OkStatus();
}

int64_t GenerateBatchCall::RequestDeadlineMicros(const v1::GenerateBatchRequest& message) const {
  const int64_t of_call = DeadlineMicros(*context_, *environment_->clock);
  const int64_t now_us = environment_->clock->NowMicros();
  const uint64_t max_timeout_ms = (std::numeric_limits<int64_t>::max() - now_us) / 1000;
  if (!message.has_timeout_ms() || message.timeout_ms() > max_timeout_ms) return of_call;
  return std::min(of_call, now_us + static_cast<int64_t>(message.timeout_ms()) * 1000);
}

const absl::StatusOr<std::optional<Caller>>& GenerateBatchCall::CurrentCaller() {
  const TokenFile* const tokens = environment_->options.tokens.get();
  const uint64_t num_tables = tokens == nullptr ? 0 : tokens->num_tables();
  // A table that comes between these lines makes the next message look again.
  if (std::exchange(caller_tables_, num_tables) != num_tables) caller_ = CallerOf(*context_, tokens);
  return caller_;
}

template <typename Request>
void GenerateBatchCall::Start(uint64_t tag, Request request, const v1::GenerateBatchRequest& message) {
  const int64_t deadline_us = RequestDeadlineMicros(message);
  std::optional<TraceParent> parent = parent_;
  if (!message.traceparent().empty()) parent = ParseTraceparent(message.traceparent());
  const absl::StatusOr<std::optional<Caller>>& caller = CurrentCaller();
  if (!caller.ok()) return Refuse(tag, caller.status());
  const size_t num_bytes = TextWork(request) + GuideWork(request, *caller, environment_->guides);
  const auto member = std::make_shared<Member>(shared_from_this(), *caller, parent, tag, std::move(request));
  absl::Status status;
  {
    const MutexLock lock(&mutex_);
    if (stage_ != Stage::kOpen) return;
    if (running_.contains(tag)) {
      status = TagRunning(tag);
    } else if (running_.size() >= environment_->options.max_batch_requests) {
      environment_->counts.Count(RpcRefusal::kTooManyBatchRequests);
      status = TooManyRequests(environment_->options.max_batch_requests);
    } else {
      running_.emplace(tag, member);
    }
  }
  if (!status.ok()) return Refuse(tag, status);
  const auto start = [member, deadline_us] { member->request().Start(deadline_us); };
  if (num_bytes <= kShortTextBytes) return start();  // This is a thread for short texts.
  status = environment_->text_threads.RunInput(OwnerOf(*caller), num_bytes, start);
  if (!status.ok()) member->EndCall(nullptr, status);
}

void GenerateBatchCall::Cancel(uint64_t tag) {
  std::shared_ptr<Member> member;
  {
    const MutexLock lock(&mutex_);
    if (const auto it = running_.find(tag); it != running_.end()) member = it->second;
  }
  if (member != nullptr) member->request().Cancel();
}

void GenerateBatchCall::Charge(ClientWork work) {
  environment_->charge(peer_, work);
}

bool GenerateBatchCall::is_open() const {
  const MutexLock lock(&mutex_);
  return stage_ == Stage::kOpen;
}

void GenerateBatchCall::Refuse(uint64_t tag, const absl::Status& status) {
  Charge(ClientWork::kLostRequest);
  {
    const MutexLock lock(&mutex_);
    AddEnd(Entry(tag, nullptr), running_.contains(tag) ? TagRunning(tag) : status, [](bool /*ok*/) {});
  }
  LimitWrites();
  Flush();
}

// The responses of a batch of jobs are flushed together. After a job that has given a response, its request adds no job
// before the response is written. So the queue becomes empty.
void GenerateBatchCall::RunLater(std::function<void()> job) {
  if (!jobs_.Add(std::move(job))) return;
  environment_->text_threads.RunOutput([self = shared_from_this()] {
    self->jobs_.Run();
    self->Flush();
  });
}

absl::Status GenerateBatchCall::CheckSize(const v1::GenerateBatchEntry& entry) const {
  const MutexLock lock(&mutex_);
  return packer_.CheckSize(entry);
}

void GenerateBatchCall::BeginEntry(bool is_first) {
  {
    const MutexLock lock(&mutex_);
    if (is_first) has_first_ = true;
    if (is_first || !has_first_) return;
  }
  Write();
  // With few processors, the client may wait for this one, and the texts of all other requests would be made before.
  std::this_thread::yield();
}

void GenerateBatchCall::AddResponse(std::shared_ptr<Member> member, v1::GenerateBatchEntry entry) {
  {
    const MutexLock lock(&mutex_);
    if (stage_ == Stage::kOpen) {
      packer_.AddResponse(std::move(entry), [member](bool ok) { member->request().OnWritten(ok); });
      CountUnread();
      return;
    }
  }
  RunLater([member = std::move(member)] { member->request().OnWritten(false); });
}

void GenerateBatchCall::End(v1::GenerateBatchEntry entry, const absl::Status& status) {
  std::shared_ptr<Member> member;  // Lives until this has returned.
  {
    // Both under one lock: with neither the request nor its end the call would look done.
    const MutexLock lock(&mutex_);
    const auto it = running_.find(entry.tag());
    member = std::move(it->second);
    running_.erase(it);
    // The request lives until its end was written: then a drain need not wait for it any more.
    AddEnd(std::move(entry), status, [member](bool /*ok*/) {});
  }
  LimitWrites();
  Flush();
  FinishIfDone();
}

void GenerateBatchCall::AddEnd(v1::GenerateBatchEntry entry, const absl::Status& status,
                               BatchPacker::OnWritten on_written) {
  *entry.mutable_end() = ToRpcStatus(status);
  environment_->counts.Count(RpcMethod::kGenerate, status.code());
  if (stage_ != Stage::kOpen) return;
  packer_.AddEnd(std::move(entry), std::move(on_written));
  CountUnread();
}

void GenerateBatchCall::CountUnread() {
  AnswerWatch& answers = environment_->answers;
  const int64_t num_bytes = packer_.num_unread_bytes();
  if (num_bytes <= AnswerWatch::kSmallBytes) {
    if (answer_id_ != 0) answers.End(std::exchange(answer_id_, 0));
    return;
  }
  if (answer_id_ != 0) return answers.Resize(answer_id_, num_bytes);
  answer_id_ = answers.Begin(peer_, num_bytes, AnswerWatch::Wait::kUnlimited, [weak = weak_from_this()] {
    if (const std::shared_ptr<GenerateBatchCall> call = weak.lock()) call->canceller_.TryCancel();
  });
}

void GenerateBatchCall::Flush() {
  if (!jobs_.is_running()) Write();  // Otherwise they are followed by a Flush.
}

void GenerateBatchCall::Write() {
  const v1::GenerateBatchResponse* message;
  {
    const MutexLock lock(&mutex_);
    message = packer_.StartWrite();
    if (message == nullptr) return;
    has_first_ = false;
    write_start_us_ = environment_->clock->NowMicros();
  }
  write_ = ToBytes(*message);
  StartWrite(&write_);
}

void GenerateBatchCall::OnWriteDone(bool ok) {
  std::vector<BatchPacker::OnWritten> on_written;
  bool reads_on;
  bool has_first;
  {
    const MutexLock lock(&mutex_);
    on_written = packer_.FinishWrite();
    // The client reads, so what is left counts as new.
    if (answer_id_ != 0) environment_->answers.End(std::exchange(answer_id_, 0));
    CountUnread();
    has_first = has_first_;
    reads_on = reading_ == Reading::kPaused && packer_.num_unread_ends() < environment_->options.max_batch_requests;
    if (reads_on) reading_ = Reading::kOn;
  }
  for (const BatchPacker::OnWritten& tell : on_written) tell(ok);
  if (reads_on) Read();
  if (!ok) CancelAll();
  has_first ? Write() : Flush();
  FinishIfDone();
}

void GenerateBatchCall::LimitWrites() {
  const MutexLock lock(&mutex_);
  if (alarm_ == nullptr) SetAlarm(environment_->options.last_write_timeout);
}

// The alarm does not keep the call alive, because the call owns the alarm.
void GenerateBatchCall::SetAlarm(absl::Duration delay) {
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + delay), [weak = weak_from_this()](bool /*is_due*/) {
    if (const std::shared_ptr<GenerateBatchCall> call = weak.lock()) call->OnAlarm();
  });
}

void GenerateBatchCall::OnAlarm() {
  {
    const MutexLock lock(&mutex_);
    if (packer_.is_empty()) {
      alarm_ = nullptr;
      return;
    }
    // A message that waits while nothing is written is about to be written.
    const int64_t spent_us = packer_.is_writing() ? environment_->clock->NowMicros() - write_start_us_ : 0;
    const absl::Duration left = environment_->options.last_write_timeout - absl::Microseconds(spent_us);
    if (left > absl::ZeroDuration()) return SetAlarm(left);
    alarm_ = nullptr;
  }
  canceller_.TryCancel();
}

void GenerateBatchCall::OnCancel() {
  RunLater([this] { CancelAll(); });
}

void GenerateBatchCall::CancelAll() {
  std::vector<BatchPacker::OnWritten> dropped;
  std::vector<std::shared_ptr<Member>> members;
  {
    const MutexLock lock(&mutex_);
    if (stage_ == Stage::kOpen) stage_ = Stage::kCancelled;
    if (reading_ == Reading::kPaused) reading_ = Reading::kOver;
    dropped = packer_.DropWaiting();
    CountUnread();
    for (const auto& [tag, member] : running_) members.push_back(member);
  }
  for (const BatchPacker::OnWritten& tell : dropped) tell(false);
  for (const std::shared_ptr<Member>& member : members) member->request().Leave();
  FinishIfDone();
}

void GenerateBatchCall::FinishIfDone() {
  absl::Status status;
  {
    const MutexLock lock(&mutex_);
    if (stage_ == Stage::kFinished || reading_ != Reading::kOver || !running_.empty() || !packer_.is_empty()) return;
    status = status_;
    if (status.ok() && stage_ == Stage::kCancelled) status = absl::CancelledError("the client ended the call");
    stage_ = Stage::kFinished;
  }
  environment_->counts.Count(RpcMethod::kGenerateBatch, status.code());
  Finish(ToGrpcStatus(status, context_));
}

}  // namespace quire
