// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/text/output_text.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// Turns the tokens of one sample into responses. A copy continues from the same state. Not thread-safe.
class ResponseBuilder {
 public:
  // Sets `prompt_text` to the text of the prompt when the request wants an echo, and to "" otherwise.
  ResponseBuilder(std::shared_ptr<const ServedModel> model, const ValidRequest& request, std::string* prompt_text);

  // Adds the next generated token. Returns true when it completes a stop string, which finishes the sample. The token
  // is left out when only the prompt is wanted. REQUIRES: !is_finished().
  bool AddToken(const ScoredToken& token);

  // The client has the tokens before this position, and their text. Called before the first AddToken.
  void SkipTo(int position) { num_skipped_ = position - prompt_tokens_; }

  // The client was told of other numerics from this position on, which is one of the skipped ones. Called before the
  // first AddToken.
  void ExpectNumericsChange(int position) { expected_numerics_change_ = position; }

  // Returns whether the numerics did not change at the position that ExpectNumericsChange was told.
  bool contradicts_client() const { return contradicts_client_; }

  // See ResponseSet.
  void SetNumericsChange(int position) {
    if (!numerics_changed_at_.has_value()) numerics_changed_at_ = position;
  }

  // No token follows. REQUIRES: !is_finished(), and the reason is not kDeadline, which ends the call with a status.
  void Finish(FinishReason reason);

  // Returns whether the current response has a finish_reason, so that it is the last one.
  bool is_finished() const { return is_finished_; }

  // The response so far: all that was added since StartNextResponse. The caller completes it. Send it if has_news().
  const v1::GenerateResponse& response() const { return response_; }
  v1::GenerateResponse* mutable_response() { return &response_; }
  bool has_news() const;

  // Completes the response with the logprobs of its tokens. Called before the response is sent.
  void WriteLogprobs();
  // The response was sent; begins the next one.
  void StartNextResponse();

  // The position of the next token.
  int next_position() const { return prompt_tokens_ + num_tokens_; }
  // UNSPECIFIED until it is finished.
  v1::FinishReason finish_reason() const { return finish_reason_; }
  int num_tokens() const { return num_tokens_; }
  double logprob_sum() const { return logprob_sum_; }  // The sum over all tokens.

 private:
  // A token of the response, if it shows logprobs.
  struct Scored {
    ScoredToken token;
    uint32_t text_offset;
  };

  void SetFinished(v1::FinishReason reason);

  std::shared_ptr<const ServedModel> model_;
  int prompt_tokens_;
  bool is_prompt_only_;
  bool shows_logprobs_;
  // Sorted. All samples of a request share them.
  std::shared_ptr<const std::vector<TokenId>> named_stop_tokens_;
  int num_tokens_ = 0;                           // Number of generated tokens.
  int num_skipped_ = 0;                          // The first of them that the client has already.
  TokenId last_token_ = 0;                       // The latest of them.
  std::optional<int> numerics_changed_at_;       // A position.
  std::optional<int> expected_numerics_change_;  // A position.
  bool contradicts_client_ = false;
  double logprob_sum_ = 0;
  bool is_finished_ = false;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::GenerateResponse response_;  // Without logprobs, until WriteLogprobs.
  // Not messages, which take ten times the memory: a sample may wait for all others.
  std::vector<Scored> scored_;
  OutputText text_;
  size_t text_begin_ = 0;  // The generated text begins here in that of the sample, in code points.
};

// Writes the logprobs of `token` as responses show them.
void SetLogprobs(const ServedModel& model, const ScoredToken& token, v1::PositionLogprobs* out);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_
