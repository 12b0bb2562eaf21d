// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/library/call_status.h"
#include "client/library/client.h"
#include "client/library/utf8.h"

namespace quire {
namespace {

// After this time without a connection, a stream that resumes says so.
constexpr absl::Duration kTellAfter = absl::Seconds(2);
// Says how long a stream that resumes waits before each attempt.
constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Milliseconds(500);
// A call that has lasted for so long was taken by a manager, also if it has sent no response yet: a search sends one at
// its end.
constexpr absl::Duration kTakenAfter = absl::Seconds(2);
// Cancel is noticed within this time.
constexpr absl::Duration kLongestWait = absl::Milliseconds(50);
// Says how long a call that could not be sent waits for the connection that gRPC makes; gRPC tries for the second time
// after 80 to 120 ms. A caller that tried again and again, with calls that fail at once, would stay without a
// connection for half a minute after the server is back.
constexpr absl::Duration kConnectTime = absl::Milliseconds(250);

}  // namespace

GenerateStream::GenerateStream(ManagerLinks* links, const v1::GenerateRequest& request, absl::Duration timeout)
    : GenerateStream(links, request, timeout, /*queue=*/nullptr, /*tag=*/nullptr) {
  if (!finished_.has_value()) Call();
}

GenerateStream::GenerateStream(ManagerLinks* links, const v1::GenerateRequest& request, absl::Duration timeout,
                               grpc::CompletionQueue* queue, void* tag)
    : links_(links),
      queue_(queue),
      tag_(tag),
      search_(links->size()),
      request_(request),
      deadline_(absl::Now() + timeout) {
  if (const absl::Status valid = CheckUtf8Fields(request); !valid.ok()) finished_ = valid;
  for (const v1::ContinuedSample& sample : request.continue_from()) continued_[sample.index()] = sample;
}

GenerateStream::~GenerateStream() {
  if (finished_.has_value()) return;
  Cancel();
  reader_->Finish();
}

void GenerateStream::Call() {
  link_ = &links_->Connect(deadline_, [this] { return is_cancelled(); });
  call_began_ = absl::Now();
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(deadline_));
  const MutexLock lock(&mutex_);
  // The readers of the call before end before its context.
  reader_ = nullptr;
  queued_reader_ = nullptr;
  context_ = std::move(context);
  if (is_cancelled_) context_->TryCancel();
  v1::InferenceService::Stub* const stub = link_->inference.get();
  if (resume_token_.empty()) {
    if (request_.continue_from_size() > 0) SetContinued();
    if (queue_ == nullptr) {
      reader_ = stub->Generate(context_.get(), request_);
    } else {
      queued_reader_ = stub->PrepareAsyncGenerate(context_.get(), request_, queue_);
    }
  } else {
    v1::ResumeRequest resume;
    resume.set_resume_token(resume_token_);
    for (const auto& [index, sample] : received_) *resume.add_received() = sample;
    if (queue_ == nullptr) {
      reader_ = stub->Resume(context_.get(), resume);
    } else {
      queued_reader_ = stub->PrepareAsyncResume(context_.get(), resume, queue_);
    }
  }
  if (queue_ != nullptr) queued_reader_->StartCall(tag_);
}

absl::Status GenerateStream::CheckOrder(const v1::GenerateResponse& response) const {
  const auto sample = received_.find(response.index());
  if (sample == received_.end() || response.position() >= sample->second.next_position()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the manager has sent position ", response.position(), " of sample ",
                                          response.index(), " again, the next one is ",
                                          sample->second.next_position()));
}

void GenerateStream::Note(const v1::GenerateResponse& response) {
  cut_.reset();
  search_ = LeaderSearch(links_->size());
  if (!response.resume_token().empty()) resume_token_ = response.resume_token();
  v1::ReceivedSample& sample = received_[response.index()];
  sample.set_index(response.index());
  sample.set_next_position(response.position() + response.token_ids_size());
  sample.set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
  if (response.has_numerics_changed_at()) sample.set_numerics_changed_at(response.numerics_changed_at());
  if (request_.on_disconnect() != v1::ON_DISCONNECT_DETACH || request_.has_beam()) return;
  v1::ContinuedSample& continued = continued_[response.index()];
  continued.set_index(response.index());
  continued.mutable_token_ids()->MergeFrom(response.token_ids());
  continued.set_has_finish(sample.has_finish());
  if (!response.numerics_fingerprint().empty()) numerics_ = response.numerics_fingerprint();
  if (response.has_seed()) seed_ = response.seed() - response.index();
  // With a name, the request that continues it can be sent twice.
  if (!response.request_id().empty()) request_.set_request_id(response.request_id());
}

bool GenerateStream::Continue() {
  if (continued_.empty() || request_.best_of() > std::max(request_.n(), 1U)) return false;
  if (request_.has_prompt_logprobs() && !continued_.contains(0)) return false;
  resume_token_.clear();
  if (seed_.has_value()) request_.mutable_sampling()->set_seed(*seed_);
  request_.set_continue_numerics(numerics_);
  SetContinued();
  return true;
}

void GenerateStream::SetContinued() {
  request_.clear_continue_from();
  for (const auto& [index, sample] : continued_) *request_.add_continue_from() = sample;
  // The new stream is only told of what changes behind these tokens.
  for (auto& [index, sample] : received_) sample.clear_numerics_changed_at();
}

bool GenerateStream::Next(v1::GenerateResponse* response) {
  while (!finished_.has_value()) {
    if (reader_->Read(response)) {
      if (Take(*response)) return true;
      Cancel();
      reader_->Finish();
      return false;
    }
    if (!GoesOnAfter(reader_->Finish())) break;
    Call();
  }
  return false;
}

bool GenerateStream::Take(const v1::GenerateResponse& response) {
  if (const absl::Status order = CheckOrder(response); !order.ok()) {
    finished_ = order;
    return false;
  }
  Note(response);
  return true;
}

bool GenerateStream::MayWaitAfter(const grpc::Status& status) const {
  if (status.ok() || finished_.has_value() || is_cancelled()) return false;
  return links_->size() > 1 || IsCut(status) || IsNotLeading(status) || HasReason(status, "NO_WORKER");
}

bool GenerateStream::GoesOnAfter(const grpc::Status& status) {
  if (!is_cancelled() && MayCallAgain(status)) return true;
  if (finished_.has_value()) return false;
  // What has failed first says more than the attempts to connect again.
  const bool is_from_manager = status.ok() || !status.error_details().empty();
  finished_ = cut_.has_value() && !is_from_manager ? *cut_ : FromGrpcStatus(status);
  return false;
}

bool GenerateStream::MayCallAgain(const grpc::Status& status) {
  if (absl::Now() - call_began_ >= kTakenAfter && !IsUnreached(status)) cut_.reset();
  const bool is_detachable = request_.on_disconnect() == v1::ON_DISCONNECT_DETACH;
  if (is_detachable && IsUnknownField(status, v1::GenerateRequest::kOnDisconnectFieldNumber)) {
    request_.clear_on_disconnect();
    return true;
  }
  if (!resume_token_.empty() && HasReason(status, "REQUEST_UNKNOWN") && Continue()) {
    unknown_ = FromGrpcStatus(status);
    return true;
  }
  if (unknown_.has_value() && IsUnknownField(status, v1::GenerateRequest::kContinueFromFieldNumber)) {
    finished_ = *unknown_;
    return false;
  }
  // A manager that has just started waits for its workers.
  const bool stands_by = links_->size() > 1 && IsNotLeading(status);
  const bool is_cut =
      IsCut(status) || stands_by || (request_.continue_from_size() > 0 && HasReason(status, "NO_WORKER"));
  if (is_cut && !cut_.has_value()) {
    cut_ = FromGrpcStatus(status);
    last_attempt_ = absl::Now() + kResumeTime;
    delay_ = kFirstDelay;
    has_told_loss_ = false;
  }
  const bool has_no_connection =
      IsCut(status) && link_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
  if (stands_by || (IsCut(status) && !IsRestoring(status))) links_->Leave(*link_);
  if (links_->size() > 1 && received_.empty() && (stands_by || has_no_connection) && AsksNextManager(stands_by))
    return true;
  if (IsRestoring(status)) delay_ = kFirstDelay;  // It takes no longer than the workers need to answer.
  if (is_detachable && is_cut && MayResume() && WaitBeforeAttempt()) {
    TellLoss();
    return true;
  }
  return is_cut && MaySendUnreachedAgain(status);
}

bool GenerateStream::MaySendUnreachedAgain(const grpc::Status& status) {
  if (link_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE) return false;
  const absl::Time end = std::min(absl::Now() + kConnectTime, deadline_);
  bool is_connected = false;
  while (!is_connected && !is_cancelled() && absl::Now() < end) {
    is_connected = link_->channel->WaitForConnected(absl::ToChronoTime(std::min(absl::Now() + kLongestWait, end)));
  }
  const bool may_call = is_connected && !is_cancelled() && absl::Now() <= last_attempt_ && links_->size() == 1;
  if (!may_call || was_sent_again_ || !IsUnreached(status)) return false;
  was_sent_again_ = true;
  cut_.reset();
  return true;
}

void GenerateStream::TellLoss() {
  if (has_told_loss_ || on_loss_ == nullptr || absl::Now() < last_attempt_ - kResumeTime + kTellAfter) return;
  has_told_loss_ = true;
  on_loss_();
}

bool GenerateStream::AsksNextManager(bool stands_by) {
  const LeaderSearch::Next next = search_.After(stands_by);
  return next == LeaderSearch::Next::kAsk || (next == LeaderSearch::Next::kPauseAndAsk && WaitBeforeAttempt());
}

bool GenerateStream::MayResume() const {
  if (!resume_token_.empty()) return true;
  if (request_.continue_from_size() > 0) return true;
  // A manager that lets no request outlive its call has sent responses without a token.
  if (!received_.empty() || request_.request_id().empty()) return false;
  if (delay_ > kFirstDelay) return true;  // The call before had a connection, so the request may have begun.
  // When no connection could be made at all, the request has not begun, and the user should hear of it soon.
  return link_->channel->GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_TRANSIENT_FAILURE;
}

bool GenerateStream::WaitBeforeAttempt() {
  const absl::Time end = absl::Now() + delay_;
  delay_ = std::min(2 * delay_, kLongestDelay);
  if (end >= deadline_ || end > last_attempt_) return false;
  // gRPC goes on with a connection only while somebody waits for the channel or for a call, and otherwise looks every
  // five seconds. So the wait is one for the connection, and ends when it is there.
  grpc::Channel* const channel = links_->current().channel.get();
  const bool is_connected = channel->GetState(/*try_to_connect=*/true) == GRPC_CHANNEL_READY;
  for (absl::Time now = absl::Now(); now < end; now = absl::Now()) {
    {
      const MutexLock lock(&mutex_);
      if (is_connected && !is_cancelled_) cancelled_.WaitFor(&mutex_, absl::ToChronoMicroseconds(end - now));
      if (is_cancelled_) return false;
    }
    if (!is_connected && channel->WaitForConnected(absl::ToChronoTime(std::min(end, now + kLongestWait)))) break;
  }
  return true;
}

bool GenerateStream::is_cancelled() const {
  const MutexLock lock(&mutex_);
  return is_cancelled_;
}

absl::Status GenerateStream::Finish() {
  if (!finished_.has_value()) finished_ = FromGrpcStatus(reader_->Finish());
  return *finished_;
}

void GenerateStream::Cancel() {
  const MutexLock lock(&mutex_);
  is_cancelled_ = true;
  cancelled_.NotifyAll();
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace quire
