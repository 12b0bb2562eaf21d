#include "kv_manager/inference/generate_batch_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/rpc/message_bytes.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

// Entries beyond this begin another message: clients take 4 MiB unless they were told otherwise.
constexpr size_t kMessageBytes = 1 << 20;
// What a message takes besides its entries, and each entry besides itself.
constexpr size_t kEnvelopeBytes = 16;

absl::Status TagRunning(uint64_t tag) {
  return WithReason(absl::AlreadyExistsError(absl::StrCat("tag: request ", tag, " of the stream runs, and goes on")),
                    "TAG_RUNNING");
}

absl::Status TooManyRequests(size_t limit) {
  return WithRetryDelay(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(limit, " requests of the stream run, the limit")),
                 "TOO_MANY_BATCH_REQUESTS", {{"max_batch_requests", absl::StrCat(limit)}}),
      /*delay_ms=*/500);
}

absl::Status NoTag() {
  FieldErrors errors;
  errors.Add("tag", "is 0, must be at least 1");
  return errors.ToStatus();
}

// Of the message without what it starts, which has a check of its own.
absl::Status CheckEnvelope(const v1::GenerateBatchRequest& message) {
  FieldErrors errors;
  CheckUnknownFields(message, "", &errors);
  if (message.action_case() == v1::GenerateBatchRequest::ACTION_NOT_SET) {
    errors.Add("action", "is not set: give start or cancel");
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

// One request of the call, and the writer of its responses. Keeps the call until it has ended.
class GenerateBatchCall::Member : public ResponseWriter, public std::enable_shared_from_this<Member> {
 public:
  Member(std::shared_ptr<GenerateBatchCall> call, uint64_t tag, v1::GenerateRequest request)
      : call_(std::move(call)),
        tag_(tag),
        request_(call_->environment_, call_->caller_, call_->parent_, std::move(request), this,
                 [call = call_](auto job) { call->RunLater(std::move(job)); }) {}

  void WriteResponse(const v1::GenerateResponse* response) override {
    v1::GenerateBatchEntry entry = Entry(tag_, response);
    too_large_ = call_->CheckSize(entry);
    if (too_large_.ok()) return call_->AddResponse(shared_from_this(), std::move(entry));
    call_->RunLater([member = shared_from_this()] { member->request().OnWritten(false); });
  }
  void LimitWrite() override { call_->LimitWrites(); }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override {
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
  absl::Status too_large_;  // Why no more can be written. Used by whoever writes.
};

GenerateBatchCall* GenerateBatchCall::New(GenerateEnvironment* environment, grpc::CallbackServerContext* context) {
  std::shared_ptr<GenerateBatchCall> call(new GenerateBatchCall(environment, context));
  call->self_ = call;
  call->StartRead(&call->read_);
  return call.get();
}

void GenerateBatchCall::OnReadDone(bool ok) {
  const absl::Status status = ok ? Handle(read_) : absl::OkStatus();
  bool reads_on;
  {
    std::lock_guard lock(mutex_);
    if (!status.ok()) status_ = status;
    is_read_paused_ = ok && status.ok() && !is_cancelled_ && num_unread_ends_ >= environment_->max_batch_requests;
    reads_on = ok && status.ok() && !is_cancelled_ && !is_read_paused_;
    if (!reads_on && !is_read_paused_) is_read_over_ = true;
  }
  if (reads_on) return StartRead(&read_);
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
  if (status.ok()) status = CheckEnvelope(message);
  if (!status.ok()) {
    Refuse(tag, status);
  } else if (message.has_cancel()) {
    Cancel(tag);
  } else {
    Start(tag, std::move(request), RequestDeadlineMicros(message));
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

void GenerateBatchCall::Start(uint64_t tag, v1::GenerateRequest request, int64_t deadline_us) {
  const size_t num_bytes = TextWork(request);
  const auto member = std::make_shared<Member>(shared_from_this(), tag, std::move(request));
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (is_cancelled_) return;
    if (running_.contains(tag)) {
      status = TagRunning(tag);
    } else if (running_.size() >= environment_->max_batch_requests) {
      environment_->counts->Count(RpcRefusal::kTooManyBatchRequests);
      status = TooManyRequests(environment_->max_batch_requests);
    } else {
      running_.emplace(tag, member);
    }
  }
  if (!status.ok()) return Refuse(tag, status);
  status = environment_->run_on_text(num_bytes, [member, deadline_us] { member->request().Start(deadline_us); });
  if (!status.ok()) member->EndCall(nullptr, status);
}

void GenerateBatchCall::Cancel(uint64_t tag) {
  std::shared_ptr<Member> member;
  {
    std::lock_guard lock(mutex_);
    if (const auto it = running_.find(tag); it != running_.end()) member = it->second;
  }
  if (member != nullptr) member->request().Cancel();
}

void GenerateBatchCall::Refuse(uint64_t tag, const absl::Status& status) {
  {
    std::lock_guard lock(mutex_);
    AddEnd(Entry(tag, nullptr), running_.contains(tag) ? TagRunning(tag) : status);
  }
  LimitWrites();
  Flush();
}

void GenerateBatchCall::RunLater(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    if (std::exchange(is_running_jobs_, true)) return;
  }
  environment_->output_threads->Schedule([self = shared_from_this()] { self->RunJobs(); });
}

// A job that gives a response is its request's last before the write, so this comes to an end.
void GenerateBatchCall::RunJobs() {
  while (true) {
    std::vector<std::function<void()>> jobs;
    {
      std::lock_guard lock(mutex_);
      jobs.swap(jobs_);
      is_running_jobs_ = !jobs.empty();
    }
    if (jobs.empty()) return Flush();
    for (const std::function<void()>& job : jobs) job();
  }
}

absl::Status GenerateBatchCall::CheckSize(const v1::GenerateBatchEntry& entry) const {
  const size_t num_bytes = entry.ByteSizeLong() + kEnvelopeBytes;
  if (num_bytes <= environment_->max_message_bytes) return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("a response of ", num_bytes, " bytes, the limit is ",
                                                              environment_->max_message_bytes)),
                    "RESPONSE_TOO_LARGE", {{"max_message_bytes", absl::StrCat(environment_->max_message_bytes)}});
}

void GenerateBatchCall::AddResponse(std::shared_ptr<Member> member, v1::GenerateBatchEntry entry) {
  {
    std::lock_guard lock(mutex_);
    if (!is_cancelled_) {
      Add(std::move(entry)).authors.push_back(std::move(member));
      return;
    }
  }
  RunLater([member = std::move(member)] { member->request().OnWritten(false); });
}

void GenerateBatchCall::End(v1::GenerateBatchEntry entry, const absl::Status& status) {
  std::shared_ptr<Member> member;  // Lives until it has returned.
  {
    // At once: without the request and before its end the call would look done.
    std::lock_guard lock(mutex_);
    const auto it = running_.find(entry.tag());
    member = std::move(it->second);
    running_.erase(it);
    AddEnd(std::move(entry), status);
    if (!is_cancelled_) messages_.back().ended.push_back(member);
  }
  LimitWrites();
  Flush();
  FinishIfDone();
}

void GenerateBatchCall::AddEnd(v1::GenerateBatchEntry entry, const absl::Status& status) {
  *entry.mutable_end() = ToRpcStatus(status);
  environment_->counts->Count(RpcMethod::kGenerate, static_cast<grpc::StatusCode>(entry.end().code()));
  if (is_cancelled_) return;
  ++Add(std::move(entry)).num_ends;
  ++num_unread_ends_;
}

GenerateBatchCall::Message& GenerateBatchCall::Add(v1::GenerateBatchEntry entry) {
  const size_t num_bytes = entry.ByteSizeLong() + kEnvelopeBytes;
  const size_t limit = std::min(kMessageBytes, environment_->max_message_bytes);
  if (messages_.empty() || messages_.back().num_bytes + num_bytes > limit) messages_.emplace_back();
  Message& message = messages_.back();
  message.num_bytes += num_bytes;
  *message.response.add_entries() = std::move(entry);
  return message;
}

void GenerateBatchCall::Flush() {
  {
    std::lock_guard lock(mutex_);
    if (is_writing_ || is_running_jobs_ || messages_.empty()) return;
    is_writing_ = true;
    write_start_us_ = environment_->clock->NowMicros();
    written_ = std::move(messages_.front());
    messages_.pop_front();
  }
  write_ = ToBytes(written_.response);
  StartWrite(&write_);
}

void GenerateBatchCall::OnWriteDone(bool ok) {
  const Members authors = std::exchange(written_.authors, {});
  const Members ended = std::exchange(written_.ended, {});
  bool reads_on;
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    num_unread_ends_ -= written_.num_ends;
    reads_on = is_read_paused_ && num_unread_ends_ < environment_->max_batch_requests;
    if (reads_on) is_read_paused_ = false;
  }
  for (const std::shared_ptr<Member>& author : authors) author->request().OnWritten(ok);
  if (reads_on) StartRead(&read_);
  if (!ok) CancelAll();
  Flush();
  FinishIfDone();
}

void GenerateBatchCall::LimitWrites() {
  std::lock_guard lock(mutex_);
  if (!has_alarm_) SetAlarm(environment_->last_write_timeout);
}

// The alarm does not keep the call alive, for the call owns the alarm.
void GenerateBatchCall::SetAlarm(absl::Duration delay) {
  has_alarm_ = true;
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(absl::ToChronoTime(absl::Now() + delay), [weak = weak_from_this()](bool /*is_due*/) {
    if (const std::shared_ptr<GenerateBatchCall> call = weak.lock()) call->OnAlarm();
  });
}

void GenerateBatchCall::OnAlarm() {
  {
    std::lock_guard lock(mutex_);
    has_alarm_ = false;
    if (!is_writing_ && messages_.empty()) return;
    // What waits while nothing is written is just about to be.
    const int64_t spent_us = is_writing_ ? environment_->clock->NowMicros() - write_start_us_ : 0;
    const absl::Duration left = environment_->last_write_timeout - absl::Microseconds(spent_us);
    if (left > absl::ZeroDuration()) return SetAlarm(left);
  }
  canceller_.TryCancel();
}

void GenerateBatchCall::OnCancel() {
  RunLater([this] { CancelAll(); });
}

void GenerateBatchCall::CancelAll() {
  std::deque<Message> dropped;
  Members members;
  {
    std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    if (std::exchange(is_read_paused_, false)) is_read_over_ = true;
    dropped.swap(messages_);
    for (const auto& [tag, member] : running_) members.push_back(member);
  }
  for (const Message& message : dropped) {
    for (const std::shared_ptr<Member>& author : message.authors) author->request().OnWritten(false);
  }
  for (const std::shared_ptr<Member>& member : members) member->request().Cancel();
  FinishIfDone();
}

void GenerateBatchCall::FinishIfDone() {
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (!is_read_over_ || !running_.empty() || !messages_.empty() || is_writing_) return;
    if (std::exchange(is_over_, true)) return;
    status = status_;
    if (status.ok() && is_cancelled_) status = absl::CancelledError("the client ended the call");
  }
  const grpc::Status wire = ToGrpcStatus(status, context_);
  environment_->counts->Count(RpcMethod::kGenerateBatch, wire.error_code());
  Finish(wire);
}

}  // namespace quire
