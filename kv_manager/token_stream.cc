#include "kv_manager/token_stream.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kv_manager/rpc_status.h"

namespace quire {
namespace {

absl::Status SlowReader(size_t limit) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("the client reads too slowly: ", limit,
                                                              " tokens wait for it, the limit; the request is over")),
                    "SLOW_READER", {{"max_outbox_tokens", absl::StrCat(limit)}});
}

}  // namespace

TokenStream::TokenStream(Environment environment, RequestId id, ResponseBuilder builder, ResponseWriter* writer)
    : environment_(std::move(environment)),
      id_(id),
      next_position_(builder.next_position()),
      builder_(std::move(builder)),
      writer_(writer) {}

template <typename Add>
bool TokenStream::Post(Add add) {
  {
    std::lock_guard lock(mutex_);
    if (is_ended_) return false;
    add(&outbox_);
    is_ended_ = outbox_.end.has_value();
    if (is_ended_ && is_writing_) writer_->LimitWrite();
    if (std::exchange(is_busy_, true)) return true;
  }
  ScheduleRun();
  return true;
}

void TokenStream::ScheduleRun() {
  environment_.run_later([self = shared_from_this()] { self->Run(); });
}

void TokenStream::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  Post([&](Outbox* outbox) { outbox->prompt_logprobs.emplace_back(first_position, std::move(tokens)); });
}

void TokenStream::OnToken(int sample_index, int position, ScoredToken token) {
  QUIRE_CHECK_EQ(sample_index, 0);
  bool is_full = false;
  Post([&](Outbox* outbox) {
    QUIRE_CHECK_EQ(position, next_position_++);
    is_full = outbox->tokens.size() >= environment_.max_outbox_tokens;
    if (is_full) {
      outbox->end = SlowReader(environment_.max_outbox_tokens);
    } else {
      outbox->tokens.push_back(std::move(token));
    }
  });
  // Not from here: this is the engine calling.
  if (is_full) environment_.run_later([engine = environment_.engine, id = id_] { engine->Cancel(id); });
}

void TokenStream::OnFinished(int /*sample_index*/, FinishReason reason) {
  Post([&](Outbox* outbox) { outbox->end = reason; });
}

void TokenStream::OnFailed(absl::Status status) {
  Post([&](Outbox* outbox) { outbox->end = std::move(status); });
}

bool TokenStream::Abort() {
  const bool was_running = Post([](Outbox* outbox) { outbox->end = FinishReason::kCancelled; });
  if (was_running) environment_.engine->Cancel(id_);
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
  environment_.engine->Cancel(id_);
  if (!was_busy) ScheduleRun();
}

void TokenStream::OnWritten(bool ok) {
  builder_.StartNextResponse();
  if (!ok) Close();
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (outbox_.empty() && !is_closed_) {
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
    {
      std::lock_guard lock(mutex_);
      batch = std::exchange(outbox_, {});
      is_closed = is_closed_;
    }
    const std::optional<absl::Status> status =
        is_closed ? absl::CancelledError("the client ended the call") : Read(batch);
    if (status.has_value()) {
      environment_.on_end();
      writer_->EndCall(builder_.has_news() && !is_closed ? &builder_.response() : nullptr, *status);
      return;
    }
    if (builder_.has_news()) {
      {
        std::lock_guard lock(mutex_);
        is_writing_ = true;
        if (is_ended_) writer_->LimitWrite();
      }
      writer_->WriteResponse(&builder_.response());
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
  for (const auto& [first_position, tokens] : batch.prompt_logprobs) builder_.AddPromptLogprobs(first_position, tokens);
  for (const ScoredToken& token : batch.tokens) {
    if (!builder_.AddToken(token)) continue;
    {
      std::lock_guard lock(mutex_);
      is_ended_ = true;
      outbox_ = {};
    }
    environment_.engine->Cancel(id_);
    return absl::OkStatus();
  }
  if (!batch.end.has_value()) return std::nullopt;
  if (!batch.end->ok()) return batch.end->status();
  if (**batch.end == FinishReason::kDeadline) {
    return absl::DeadlineExceededError(
        absl::StrCat("the call's deadline passed after ", builder_.num_tokens(), " generated tokens"));
  }
  builder_.Finish(**batch.end);
  return absl::OkStatus();
}

}  // namespace quire
