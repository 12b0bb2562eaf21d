#ifndef QUIRE_KV_MANAGER_RESPONSE_BUILDER_H_
#define QUIRE_KV_MANAGER_RESPONSE_BUILDER_H_

#include <memory>
#include <string>
#include <vector>

#include "kv_manager/output_text.h"
#include "kv_manager/request_validation.h"
#include "kv_manager/served_model.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// Turns the tokens of one request into responses. Not thread-safe.
class ResponseBuilder {
 public:
  // `name` is GenerateResponse.request_id.
  ResponseBuilder(std::shared_ptr<const ServedModel> model, std::string name, const ValidRequest& request);

  // Logprobs of prompt tokens at first_position and after it; before the first token.
  void AddPromptLogprobs(int first_position, const std::vector<ScoredToken>& tokens);

  // The next generated token. Returns true when it completes a stop string: then the response is the last one.
  bool AddToken(const ScoredToken& token);

  // No token follows: the response is the last one. REQUIRES: reason is not kDeadline, which ends a call by a status.
  void Finish(FinishReason reason);

  // What was added since StartNextResponse; worth sending when there are news.
  const v1::GenerateResponse& response() const { return response_; }
  bool has_news() const;

  // The response was sent.
  void StartNextResponse();

  int num_tokens() const { return num_tokens_; }
  int next_position() const { return prompt_tokens_ + num_tokens_; }

 private:
  void BeginResponse();
  void SetFinished(v1::FinishReason reason);
  void SetLogprobs(const ScoredToken& token, v1::PositionLogprobs* out) const;
  void SetLogprob(TokenId token, float logprob, v1::TokenLogprob* out) const;

  std::shared_ptr<const ServedModel> model_;
  std::string name_;
  int prompt_tokens_;
  bool has_logprobs_;
  bool has_prompt_logprobs_;
  std::vector<TokenId> named_stop_tokens_;  // Sorted.
  int num_tokens_ = 0;                      // Generated so far.
  TokenId last_token_ = 0;                  // Of those.
  v1::GenerateResponse response_;
  OutputText text_;  // Its construction writes the prompt's text to response_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RESPONSE_BUILDER_H_
