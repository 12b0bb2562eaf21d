// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_SCORE_ANSWER_H_
#define QUIRE_GATEWAY_OPENAI_SCORE_ANSWER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gateway/openai/call_answer.h"
#include "gateway/openai/reranker.h"

namespace quire {

// The answer to a RerankCall: the score of a pair is the probability of "yes" among "yes" and "no".
class ScoreAnswer : public CallAnswer {
 public:
  // REQUIRES: `call` is a RerankCall.
  ScoreAnswer(const GenerateCall& call, AnswerHead head);

  void SetSyntax(AnswerSyntax /*syntax*/) override {}
  void SetBeginsInReasoning(bool /*begins_in_reasoning*/) override {}
  std::string Add(size_t pair, const v1::GenerateResponse& response) override;
  std::string LastEvents() override { return ""; }
  std::string Body() override;
  std::string ErrorEvent(const ApiError& /*error*/, const std::string& /*request_id*/) const override { return ""; }
  size_t num_bytes() const override;

 private:
  // The logprobs of the two answers. One that has not come cannot be drawn.
  struct Answers {
    double yes = -std::numeric_limits<double>::infinity();
    double no = -std::numeric_limits<double>::infinity();
  };

  const std::shared_ptr<const RerankSettings> settings_;
  const AnswerHead head_;
  std::vector<Answers> answers_;  // [num_pairs]
  int64_t num_tokens_ = 0;        // Of the prompts.
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_SCORE_ANSWER_H_
