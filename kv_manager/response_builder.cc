#include "kv_manager/response_builder.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

ResponseBuilder::ResponseBuilder(std::shared_ptr<const ServedModel> model, std::string name,
                                 const ValidRequest& request)
    : model_(std::move(model)),
      name_(std::move(name)),
      prompt_tokens_(static_cast<int>(request.request.prompt.size())),
      has_logprobs_(request.request.sampling.num_logprobs >= 0),
      has_prompt_logprobs_(request.request.sampling.num_prompt_logprobs >= 0),
      named_stop_tokens_(request.named_stop_tokens),
      text_(model_->tokenizer.get(), request.request.prompt, request.output,
            request.echo == Echo::kTokens ? response_.mutable_text_delta() : nullptr) {
  BeginResponse();
  response_.set_seed(request.request.sampling.seed);
  if (request.echo == Echo::kText) response_.set_text_delta(request.prompt_text);
  if (!has_prompt_logprobs_) return;
  for (int i = 0; i < prompt_tokens_; ++i) response_.add_prompt_logprobs();
}

void ResponseBuilder::StartNextResponse() {
  response_.Clear();
  BeginResponse();
}

void ResponseBuilder::BeginResponse() {
  response_.set_request_id(name_);
  response_.set_position(next_position());
}

bool ResponseBuilder::has_news() const {
  return response_.token_ids_size() > 0 || response_.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
}

void ResponseBuilder::AddPromptLogprobs(int first_position, const std::vector<ScoredToken>& tokens) {
  if (!has_prompt_logprobs_) return;
  QUIRE_CHECK_GE(first_position, 0);
  QUIRE_CHECK_LE(first_position + static_cast<int>(tokens.size()), response_.prompt_logprobs_size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    SetLogprobs(tokens[i], response_.mutable_prompt_logprobs(first_position + static_cast<int>(i)));
  }
}

bool ResponseBuilder::AddToken(const ScoredToken& token) {
  ++num_tokens_;
  last_token_ = token.token;
  response_.add_token_ids(token.token);
  if (has_logprobs_) SetLogprobs(token, response_.add_logprobs());
  std::optional<std::string> stop = text_.Append(token.token, response_.mutable_text_delta());
  if (!stop.has_value()) return false;
  response_.set_stop(*std::move(stop));
  SetFinished(v1::FINISH_REASON_STOP);
  return true;
}

void ResponseBuilder::Finish(FinishReason reason) {
  QUIRE_CHECK(reason != FinishReason::kDeadline);
  if (std::optional<std::string> stop = text_.Finish(response_.mutable_text_delta()); stop.has_value()) {
    response_.set_stop(*std::move(stop));
    return SetFinished(v1::FINISH_REASON_STOP);
  }
  switch (reason) {
    case FinishReason::kLength:
      return SetFinished(v1::FINISH_REASON_LENGTH);
    case FinishReason::kStopToken:
      if (std::binary_search(named_stop_tokens_.begin(), named_stop_tokens_.end(), last_token_)) {
        response_.set_stop_token_id(last_token_);
      }
      return SetFinished(v1::FINISH_REASON_STOP);
    case FinishReason::kCancelled:
    case FinishReason::kDeadline:
      return SetFinished(v1::FINISH_REASON_ABORT);
  }
}

void ResponseBuilder::SetFinished(v1::FinishReason reason) {
  response_.set_finish_reason(reason);
  response_.mutable_usage()->set_prompt_tokens(prompt_tokens_);
  response_.mutable_usage()->set_completion_tokens(num_tokens_);
}

void ResponseBuilder::SetLogprobs(const ScoredToken& token, v1::PositionLogprobs* out) const {
  SetLogprob(token.token, token.logprob, out->mutable_chosen());
  out->set_rank(token.rank);
  for (const TokenLogprob& alternative : token.top) SetLogprob(alternative.token, alternative.logprob, out->add_top());
}

void ResponseBuilder::SetLogprob(TokenId token, float logprob, v1::TokenLogprob* out) const {
  out->set_token_id(token);
  out->set_logprob(logprob);
  if (model_->tokenizer != nullptr) out->set_token(model_->tokenizer->TokenBytes(token));
}

}  // namespace quire
