// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/score_answer.h"

#include <cmath>
#include <utility>

namespace quire {

ScoreAnswer::ScoreAnswer(const GenerateCall& call, AnswerHead head)
    : settings_(call.rerank), head_(std::move(head)), answers_(call.requests.size()) {}

std::string ScoreAnswer::Add(size_t pair, const v1::GenerateResponse& response) {
  for (const v1::PositionLogprobs& position : response.logprobs()) {
    const v1::TokenLogprob& chosen = position.chosen();
    if (chosen.token_id() == settings_->reranker->yes) answers_[pair].yes = chosen.logprob();
    if (chosen.token_id() == settings_->reranker->no) answers_[pair].no = chosen.logprob();
  }
  num_tokens_ += response.usage().prompt_tokens();
  return "";
}

std::string ScoreAnswer::Body() {
  EmbedAnswer answer{.id = head_.id, .model = head_.model, .created_unix_sec = head_.created_unix_sec};
  for (const Answers& pair : answers_) {
    answer.scores.push_back(std::isinf(pair.yes) ? 0.0 : 1 / (1 + std::exp(pair.no - pair.yes)));
  }
  answer.num_tokens = num_tokens_;
  return settings_->call.body(answer);
}

size_t ScoreAnswer::num_bytes() const {
  return settings_->call.AnswerBytes(0) + answers_.size() * (sizeof(Answers) + sizeof(double));
}

}  // namespace quire
