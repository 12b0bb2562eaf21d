// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/response_builder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace quire {
namespace {

void SetLogprob(const ServedModel& model, TokenId token, float logprob, v1::TokenLogprob* out) {
  out->set_token_id(token);
  out->set_logprob(logprob);
  if (model.tokenizer != nullptr) out->set_token(model.tokenizer->TokenBytes(token));
}

}  // namespace

void SetLogprobs(const ServedModel& model, const ScoredToken& token, v1::PositionLogprobs* out) {
  SetLogprob(model, token.token, token.logprob, out->mutable_chosen());
  out->set_rank(token.rank);
  for (const TokenLogprob& other : token.top) SetLogprob(model, other.token, other.logprob, out->add_top());
}

ResponseBuilder::ResponseBuilder(std::shared_ptr<const ServedModel> model, const ValidRequest& request,
                                 std::string* prompt_text)
    : model_(std::move(model)),
      prompt_tokens_(static_cast<int>(request.request.prompt.size())),
      is_prompt_only_(request.request.is_prompt_only),
      shows_logprobs_(request.shows_logprobs),
      named_stop_tokens_(std::make_shared<std::vector<TokenId>>(request.named_stop_tokens)),
      text_(model_->tokenizer.get(), request.request.prompt, request.output,
            request.echo == Echo::kTokens ? prompt_text : nullptr) {
  if (request.echo != Echo::kTokens) *prompt_text = request.prompt_text;
  text_begin_ = NumCodePoints(*prompt_text);
  response_.set_position(prompt_tokens_);
}

void ResponseBuilder::WriteLogprobs() {
  for (const Scored& scored : std::exchange(scored_, {})) {
    v1::PositionLogprobs* const logprobs = response_.add_logprobs();
    SetLogprobs(*model_, scored.token, logprobs);
    logprobs->set_text_offset(scored.text_offset);
  }
}

void ResponseBuilder::StartNextResponse() {
  response_.Clear();
  scored_.clear();
  response_.set_position(prompt_tokens_ + num_tokens_);
}

bool ResponseBuilder::has_news() const {
  return response_.token_ids_size() > 0 || response_.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

bool ResponseBuilder::AddToken(const ScoredToken& token) {
  QUIRE_CHECK(!is_finished_);
  if (is_prompt_only_) return false;
  ++num_tokens_;
  last_token_ = token.token;
  logprob_sum_ += token.logprob;
  response_.add_token_ids(token.token);
  const int position = prompt_tokens_ + num_tokens_ - 1;
  if (position == numerics_changed_at_) response_.set_numerics_changed_at(position);
  contradicts_client_ |= position == expected_numerics_change_ && position != numerics_changed_at_;
  if (shows_logprobs_) {
    scored_.push_back({token, static_cast<uint32_t>(text_begin_ + text_.num_code_points())});
  }
  std::optional<std::string> stop = text_.Append(token.token, response_.mutable_text_delta());
  if (num_tokens_ <= num_skipped_) StartNextResponse();
  if (!stop.has_value()) return false;
  response_.set_stop(*std::move(stop));
  SetFinished(v1::FINISH_REASON_STOP);
  return true;
}

void ResponseBuilder::Finish(FinishReason reason) {
  QUIRE_CHECK(!is_finished_ && reason != FinishReason::kDeadline);
  if (std::optional<std::string> stop = text_.Finish(response_.mutable_text_delta()); stop.has_value()) {
    response_.set_stop(*std::move(stop));
    return SetFinished(v1::FINISH_REASON_STOP);
  }
  switch (reason) {
    case FinishReason::kLength:
      return SetFinished(v1::FINISH_REASON_LENGTH);
    case FinishReason::kStopToken:
      if (is_prompt_only_) return SetFinished(v1::FINISH_REASON_LENGTH);
      if (std::binary_search(named_stop_tokens_->begin(), named_stop_tokens_->end(), last_token_)) {
        response_.set_stop_token_id(last_token_);
      }
      return SetFinished(v1::FINISH_REASON_STOP);
    case FinishReason::kCancelled:
    case FinishReason::kDeadline:
      return SetFinished(v1::FINISH_REASON_ABORT);
  }
}

void ResponseBuilder::SetFinished(v1::FinishReason reason) {
  is_finished_ = true;
  finish_reason_ = reason;
  response_.set_finish_reason(reason);
}

}  // namespace quire
