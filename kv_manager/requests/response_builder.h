#ifndef QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_

#include <memory>
#include <string>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/text/output_text.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// Turns the tokens of one sample into responses. Copying forks it. Not thread-safe.
class ResponseBuilder {
 public:
  // `prompt_text` is set to what the text begins with: "" unless the request wants an echo.
  ResponseBuilder(std::shared_ptr<const ServedModel> model, const ValidRequest& request, std::string* prompt_text);

  // The next generated token. Returns true when it completes a stop string: then the sample is finished.
  // REQUIRES: !is_finished().
  bool AddToken(const ScoredToken& token);

  // No token follows. REQUIRES: !is_finished(), and reason is not kDeadline, which ends a call by a status.
  void Finish(FinishReason reason);

  // The response that has the finish_reason is there, and is the last one.
  bool is_finished() const { return is_finished_; }

  // What was added since StartNextResponse, for others to complete; worth sending when there are news.
  const v1::GenerateResponse& response() const { return response_; }
  v1::GenerateResponse* mutable_response() { return &response_; }
  bool has_news() const;

  // The response was sent.
  void StartNextResponse();

  // UNSPECIFIED until it is finished.
  v1::FinishReason finish_reason() const { return finish_reason_; }
  int num_tokens() const { return num_tokens_; }
  double logprob_sum() const { return logprob_sum_; }  // Of all tokens.

 private:
  void SetFinished(v1::FinishReason reason);

  std::shared_ptr<const ServedModel> model_;
  int prompt_tokens_;
  bool shows_logprobs_;
  std::vector<TokenId> named_stop_tokens_;  // Sorted.
  int num_tokens_ = 0;                      // Generated so far.
  TokenId last_token_ = 0;                  // Of those.
  double logprob_sum_ = 0;
  bool is_finished_ = false;
  v1::FinishReason finish_reason_ = v1::FINISH_REASON_UNSPECIFIED;
  v1::GenerateResponse response_;
  OutputText text_;
};

// `token` as responses show it.
void SetLogprobs(const ServedModel& model, const ScoredToken& token, v1::PositionLogprobs* out);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESPONSE_BUILDER_H_
