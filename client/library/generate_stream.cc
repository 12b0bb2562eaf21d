// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/library/client.h"
#include "client/library/utf8.h"
#include "client/policy/call_status.h"

namespace quire {
namespace {

// After this time without a connection, a stream that resumes says so.
constexpr absl::Duration kTellAfter = absl::Seconds(2);
// Longest time until Cancel is noticed.
constexpr absl::Duration kLongestWait = absl::Milliseconds(50);
// How long a call that could not be sent waits for the connection that gRPC makes; gRPC tries for the second time after
// 80 to 120 ms. A caller that kept trying, with calls that fail at once, would stay without a connection for half a
// minute after the server is back.
constexpr absl::Duration kConnectTime = absl::Milliseconds(250);

CallRequest CallRequestOf(const v1::GenerateRequest& request, absl::Time deadline, size_t num_managers) {
  return {.num_managers = num_managers,
          .deadline = deadline,
          .resume_time = GenerateStream::kResumeTime,
          .is_stream = true,
          .has_on_disconnect = request.on_disconnect() != v1::ON_DISCONNECT_UNSPECIFIED,
          .is_detachable = request.on_disconnect() == v1::ON_DISCONNECT_DETACH,
          .is_named = !request.request_id().empty(),
          .is_continued = request.continue_from_size() > 0,
          .is_ranked = request.has_beam() || request.best_of() > std::max(request.n(), 1U),
          .has_prompt_logprobs = request.has_prompt_logprobs()};
}

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
      request_(request),
      deadline_(absl::Now() + timeout),
      policy_(CallRequestOf(request, deadline_, links->size())) {
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
  policy_.Begin(absl::Now());
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(deadline_));
  const MutexLock lock(&mutex_);
  // The readers of the previous call end here, before its context.
  reader_ = nullptr;
  queued_reader_ = nullptr;
  context_ = std::move(context);
  if (is_cancelled_) context_->TryCancel();
  v1::InferenceService::Stub* const stub = link_->inference.get();
  if (!policy_.has_token()) {
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

void GenerateStream::Note(const v1::GenerateResponse& response) {
  policy_.Note(response.index(), !response.resume_token().empty());
  if (!response.resume_token().empty()) resume_token_ = response.resume_token();
  v1::ReceivedSample& sample = received_[response.index()];
  sample.set_index(response.index());
  sample.set_next_position(response.position() + response.token_ids_size());
  sample.set_has_finish(response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
  if (response.has_numerics_changed_at()) sample.set_numerics_changed_at(response.numerics_changed_at());
  if (!policy_.keeps_tokens()) return;
  v1::ContinuedSample& continued = continued_[response.index()];
  continued.set_index(response.index());
  continued.mutable_token_ids()->MergeFrom(response.token_ids());
  continued.set_has_finish(sample.has_finish());
  if (!response.numerics_fingerprint().empty()) numerics_ = response.numerics_fingerprint();
  if (response.has_seed()) seed_ = response.seed() - response.index();
  // With a name, a request that outlives its call can be sent twice.
  const bool is_detachable = request_.on_disconnect() == v1::ON_DISCONNECT_DETACH;
  if (is_detachable && !response.request_id().empty()) request_.set_request_id(response.request_id());
}

void GenerateStream::Continue() {
  if (seed_.has_value()) request_.mutable_sampling()->set_seed(*seed_);
  request_.set_continue_numerics(numerics_);
  SetContinued();
}

void GenerateStream::SetContinued() {
  request_.clear_continue_from();
  for (const auto& [index, sample] : continued_) *request_.add_continue_from() = sample;
  // The new stream reports changes of numerics only after these tokens.
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
    Decide(reader_->Finish());
    if (!Continues()) break;
    Call();
  }
  return false;
}

bool GenerateStream::Take(const v1::GenerateResponse& response) {
  const auto sample = received_.find(response.index());
  if (sample != received_.end() && response.position() < sample->second.next_position()) {
    finished_ =
        absl::InternalError(absl::StrCat("the manager has sent position ", response.position(), " of sample ",
                                         response.index(), " again, the next one is ", sample->second.next_position()));
    return false;
  }
  Note(response);
  return true;
}

bool GenerateStream::Decide(const grpc::Status& status) {
  if (finished_.has_value()) return false;
  if (status.ok()) {
    finished_ = absl::OkStatus();
    return false;
  }
  action_ = policy_.After(RpcStatusOf(status), absl::Now());
  if (is_cancelled()) action_ = {.error = action_.error};
  if (action_.leaves) links_->Leave(*link_);
  if (action_.kind == CallAction::Kind::kWithoutOnDisconnect) request_.clear_on_disconnect();
  if (action_.kind == CallAction::Kind::kContinue) Continue();
  return links_->size() > 1 || action_.delay > absl::ZeroDuration() || has_no_connection();
}

bool GenerateStream::Continues() {
  if (finished_.has_value()) return false;
  if (action_.kind == CallAction::Kind::kStop ? !MaySendUnreachedAgain() : !Wait(action_.delay)) {
    finished_ = FromRpcStatus(action_.error);
    return false;
  }
  const bool is_loss = action_.kind == CallAction::Kind::kAgain || action_.kind == CallAction::Kind::kResume;
  const absl::Time lost_at = policy_.lost_at();
  if (is_loss && on_loss_ != nullptr && lost_at != told_loss_at_ && absl::Now() >= lost_at + kTellAfter) {
    told_loss_at_ = lost_at;
    on_loss_();
  }
  return true;
}

bool GenerateStream::has_no_connection() const {
  return IsCut(action_.error) && link_->channel->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_TRANSIENT_FAILURE;
}

bool GenerateStream::MaySendUnreachedAgain() {
  if (!has_no_connection()) return false;
  const absl::Time end = std::min(absl::Now() + kConnectTime, deadline_);
  bool is_connected = false;
  while (!is_connected && !is_cancelled() && absl::Now() < end) {
    is_connected = link_->channel->WaitForConnected(absl::ToChronoTime(std::min(absl::Now() + kLongestWait, end)));
  }
  const bool is_unsent = policy_.lost_at() == absl::InfiniteFuture() && IsUnreached(action_.error);
  const bool may_call = is_connected && !is_cancelled() && links_->size() == 1;
  return is_unsent && may_call && !std::exchange(was_sent_again_, true);
}

bool GenerateStream::Wait(absl::Duration delay) {
  const absl::Time end = absl::Now() + delay;
  // gRPC keeps connecting only while somebody waits for the channel or for a call, and otherwise looks every five
  // seconds. So this waits for the connection, and ends when it is ready.
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
