#include "kv_manager/requests/token_stream.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv_manager/rpc/rpc_status.h"

namespace quire {
namespace {

absl::Status SlowReader(size_t limit) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: ", limit,
                                                              " tokens wait for it, the limit; the request is over")),
                    "SLOW_READER", {{"max_outbox_tokens", absl::StrCat(limit)}});
}

}  // namespace

TokenStream::TokenStream(Environment environment, RequestId id, ResponseSet responses, ResponseWriter* writer)
    : environment_(std::move(environment)),
      id_(id),
      max_outbox_tokens_(std::max<size_t>(environment_.max_outbox_tokens, responses.max_step_tokens())),
      next_positions_(responses.num_samples(), responses.num_prompt_tokens()),
      responses_(std::move(responses)),
      writer_(writer) {}

template <typename Add>
bool TokenStream::Post(Add add) {
  {
    std::lock_guard lock(mutex_);
    if (is_ended_) return false;
    add(&outbox_);
    is_ended_ = outbox_.end.has_value();
    if (is_ended_ && is_writing_) LimitWrites();
    if (std::exchange(is_busy_, true)) return true;
  }
  ScheduleRun();
  return true;
}

void TokenStream::ScheduleRun() {
  environment_.run_later([self = shared_from_this()] { self->Run(); });
}

void TokenStream::TellEnd(const absl::Status& status) {
  environment_.on_end(
      {.finish_reason = status.ok() ? responses_.finish_reasons() : absl::StatusCodeToString(status.code()),
       .prompt_tokens = responses_.num_prompt_tokens(),
       .cached_tokens = responses_.num_cached_tokens(),
       .output_tokens = responses_.num_output_tokens()});
}

void TokenStream::LimitWrites() {
  if (!std::exchange(is_limited_, true)) writer_->LimitWrite();
}

void TokenStream::OnStarted(int num_cached_tokens) {
  Post([&](Outbox* outbox) { outbox->num_cached_tokens = num_cached_tokens; });
}

void TokenStream::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  Post([&](Outbox* outbox) { outbox->prompt_logprobs.emplace_back(first_position, std::move(tokens)); });
}

void TokenStream::OnToken(int sample_index, int position, ScoredToken token) {
  QUIRE_CHECK_LT(sample_index, static_cast<int>(next_positions_.size()));
  bool is_full = false;
  Post([&](Outbox* outbox) {
    QUIRE_CHECK_EQ(position, next_positions_[sample_index]++);
    is_full = outbox->tokens.size() >= max_outbox_tokens_;
    if (is_full) {
      outbox->end = SlowReader(max_outbox_tokens_);
    } else {
      outbox->tokens.push_back({sample_index, std::move(token)});
    }
  });
  // Not from here: this is the engine calling.
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
  std::lock_guard lock(mutex_);
  return is_ended_;
}

void TokenStream::Close() {
  bool was_busy;
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
    is_ended_ = true;
    outbox_ = {};
    was_busy = std::exchange(is_busy_, true);
  }
  environment_.engine->Cancel(id_, FinishReason::kCancelled);
  if (!was_busy) ScheduleRun();
}

void TokenStream::OnWritten(bool ok) {
  responses_.StartNext();
  if (!ok) Close();
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    const bool is_idle = outbox_.empty() && !is_closed_ && !status_.has_value() && !responses_.has_next();
    if (is_idle) {
      is_busy_ = false;
      return;
    }
  }
  ScheduleRun();
}

void TokenStream::Run() {
  while (true) {
    Outbox batch;
    bool is_closed;
    const bool reads = !status_.has_value() && !responses_.has_next();
    {
      std::lock_guard lock(mutex_);
      if (reads) batch = std::exchange(outbox_, {});
      is_closed = is_closed_;
    }
    if (is_closed) {
      const absl::Status status = absl::CancelledError("the client has ended it");
      TellEnd(status);
      writer_->EndCall(nullptr, status);
      return;
    }
    if (reads) status_ = Read(batch);
    const bool has_next = responses_.has_next();
    if (status_.has_value() && (!has_next || responses_.is_last())) {
      TellEnd(*status_);
      writer_->EndCall(has_next ? responses_.Next() : nullptr, *status_);
      return;
    }
    if (has_next) {
      {
        std::lock_guard lock(mutex_);
        is_writing_ = true;
        if (is_ended_) LimitWrites();
      }
      writer_->WriteResponse(responses_.Next());
      return;
    }
    std::lock_guard lock(mutex_);
    if (outbox_.empty() && !is_closed_) {
      is_busy_ = false;
      return;
    }
  }
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
    std::lock_guard lock(mutex_);
    is_ended_ = true;
    outbox_ = {};
  }
  environment_.engine->Cancel(id_, FinishReason::kStopToken);
  return true;
}

}  // namespace quire
