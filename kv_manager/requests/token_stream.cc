#include "kv_manager/requests/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_reason.h"

namespace quire {
namespace {

absl::Status SlowReader(size_t limit) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: ", limit,
                                                              " tokens wait for it, and the limit is ", limit,
                                                              " (--max-outbox-tokens); the request is over")),
                    "SLOW_READER", {{"max_outbox_tokens", absl::StrCat(limit)}});
}

}  // namespace

TokenStream::TokenStream(Environment environment, RequestId id, ResponseSet responses, ResponseWriter* writer)
    : environment_(std::move(environment)),
      id_(id),
      max_outbox_tokens_(std::max<size_t>(environment_.max_outbox_tokens, responses.max_step_tokens())),
      writer_(writer),
      next_positions_(responses.num_samples(), responses.num_prompt_tokens()),
      responses_(std::move(responses)) {}

template <typename Add>
bool TokenStream::Post(Add add) {
  {
    const MutexLock lock(&mutex_);
    if (generation_ != Generation::kRunning) return false;
    add(&outbox_);
    if (!TakeNote()) return true;
  }
  ScheduleRun();
  return true;
}

bool TokenStream::TakeNote() {
  if (outbox_.end.has_value()) {
    generation_ = Generation::kEnded;
    if (delivery_ == Delivery::kWriting) LimitWrites();
  }
  if (delivery_ != Delivery::kIdle) return false;
  delivery_ = Delivery::kJob;
  return true;
}

void TokenStream::ScheduleRun() {
  environment_.run_later([self = shared_from_this()] { self->Run(); });
}

void TokenStream::LimitWrites() {
  if (!std::exchange(has_limited_writes_, true)) writer_->LimitWrite();
}

void TokenStream::OnStarted(int num_cached_tokens) {
  Post([&](Outbox* outbox) { outbox->num_cached_tokens = num_cached_tokens; });
}

void TokenStream::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  Post([&](Outbox* outbox) { outbox->prompt_logprobs.emplace_back(first_position, std::move(tokens)); });
}

void TokenStream::OnToken(int sample_index, int position, ScoredToken token) {
  bool is_full;
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    QUIRE_CHECK_LT(sample_index, static_cast<int>(next_positions_.size()));
    if (generation_ != Generation::kRunning) return;
    QUIRE_CHECK_EQ(position, next_positions_[sample_index]++);
    is_full = outbox_.tokens.size() >= max_outbox_tokens_;
    if (is_full) {
      outbox_.end = SlowReader(max_outbox_tokens_);
    } else {
      outbox_.tokens.push_back({sample_index, std::move(token)});
    }
    needs_job = TakeNote();
  }
  if (needs_job) ScheduleRun();
  // On another thread, because the engine is calling.
  if (is_full)
    environment_.run_later([engine = environment_.engine, id = id_] { engine->Cancel(id, FinishReason::kCancelled); });
}

void TokenStream::OnFinished(const Finished& finished) {
  Post([&](Outbox* outbox) {
    outbox->finished.push_back(finished);
    if (finished.ends_request) outbox->end = absl::OkStatus();
  });
}

void TokenStream::OnFailed(absl::Status status) {
  Post([&](Outbox* outbox) { outbox->end = std::move(status); });
}

bool TokenStream::Abort() {
  const bool was_running = Post([](Outbox* outbox) { outbox->end = absl::OkStatus(); });
  if (was_running) environment_.engine->Cancel(id_, FinishReason::kCancelled);
  return was_running;
}

bool TokenStream::has_ended() const {
  const MutexLock lock(&mutex_);
  return generation_ != Generation::kRunning;
}

void TokenStream::Close() {
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    generation_ = Generation::kClosed;
    outbox_ = {};
    needs_job = delivery_ == Delivery::kIdle;
    if (needs_job) delivery_ = Delivery::kJob;
  }
  environment_.engine->Cancel(id_, FinishReason::kCancelled);
  if (needs_job) ScheduleRun();
}

void TokenStream::OnWritten(bool ok) {
  responses_.StartNext();
  if (!ok) Close();
  const bool has_more = status_.has_value() || responses_.has_next();
  {
    const MutexLock lock(&mutex_);
    const bool is_idle = !has_more && outbox_.empty() && generation_ != Generation::kClosed;
    delivery_ = is_idle ? Delivery::kIdle : Delivery::kJob;
    if (is_idle) return;
  }
  ScheduleRun();
}

void TokenStream::Run() {
  while (true) {
    Outbox batch;
    const bool reads = !status_.has_value() && !responses_.has_next();
    bool is_closed;
    {
      const MutexLock lock(&mutex_);
      if (reads) batch = std::exchange(outbox_, {});
      is_closed = generation_ == Generation::kClosed;
    }
    if (is_closed) return EndCall(nullptr, absl::CancelledError("the client has ended it"));
    if (reads) status_ = Read(batch);
    const bool has_next = responses_.has_next();
    if (status_.has_value() && (!has_next || responses_.is_last())) {
      return EndCall(has_next ? responses_.Next() : nullptr, *status_);
    }
    if (has_next) return Write();
    if (BecomeIdle()) return;
  }
}

void TokenStream::Write() {
  {
    const MutexLock lock(&mutex_);
    delivery_ = Delivery::kWriting;
    if (generation_ != Generation::kRunning) LimitWrites();
  }
  writer_->WriteResponse(responses_.Next());
}

bool TokenStream::BecomeIdle() {
  const MutexLock lock(&mutex_);
  if (!outbox_.empty() || generation_ == Generation::kClosed) return false;
  delivery_ = Delivery::kIdle;
  return true;
}

void TokenStream::EndCall(const v1::GenerateResponse* response, const absl::Status& status) {
  {
    const MutexLock lock(&mutex_);
    delivery_ = Delivery::kOver;
  }
  environment_.on_end(
      {.finish_reason = status.ok() ? responses_.finish_reasons() : absl::StatusCodeToString(status.code()),
       .prompt_tokens = responses_.num_prompt_tokens(),
       .cached_tokens = responses_.num_cached_tokens(),
       .output_tokens = responses_.num_output_tokens()});
  writer_->EndCall(response, status);
}

std::optional<absl::Status> TokenStream::Read(const Outbox& batch) {
  if (!batch.tokens.empty() && environment_.on_tokens != nullptr) environment_.on_tokens();
  if (batch.num_cached_tokens.has_value()) responses_.SetCachedTokens(*batch.num_cached_tokens);
  for (const auto& [first_position, tokens] : batch.prompt_logprobs) {
    responses_.AddPromptLogprobs(first_position, tokens);
  }
  std::vector<int> stopped;
  for (const auto& [sample_index, token] : batch.tokens) {
    if (responses_.AddToken(sample_index, token)) stopped.push_back(sample_index);
  }
  for (const Finished& finished : batch.finished) responses_.FinishSample(finished);

  std::optional<absl::Status> status = batch.end;
  if (!status.has_value() && StopSamples(stopped)) status = absl::OkStatus();
  if (status.has_value()) responses_.End(/*is_whole=*/status->ok());
  return status;
}

bool TokenStream::StopSamples(const std::vector<int>& sample_indices) {
  if (!responses_.are_all_finished()) {
    for (int sample_index : sample_indices) environment_.engine->CancelSample(id_, sample_index);
    return false;
  }
  {
    const MutexLock lock(&mutex_);
    if (generation_ == Generation::kRunning) generation_ = Generation::kEnded;
    outbox_ = {};
  }
  environment_.engine->Cancel(id_, FinishReason::kStopToken);
  return true;
}

}  // namespace quire
