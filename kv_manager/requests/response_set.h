#ifndef QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/response_builder.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// Turns the tokens of one request into responses, each of them with tokens of one sample. Samples are sent as they
// come, with two exceptions: when the best of them are to be picked, all wait for the end; and the hypotheses of a beam
// search, which are the same as far as they are known before the end, wait but for the best. Not thread-safe.
class ResponseSet {
 public:
  // `name` is GenerateResponse.request_id.
  ResponseSet(std::shared_ptr<const ServedModel> model, std::string name, const ValidRequest& request);

  void SetCachedTokens(int num_tokens) { num_cached_tokens_ = num_tokens; }

  // Logprobs of prompt tokens at first_position and after it; before the first token.
  void AddPromptLogprobs(int first_position, const std::vector<ScoredToken>& tokens);

  // The next token of a sample; ignored when that is finished. Returns true when it completes a stop string, which ends
  // the sample: then the engine is to be told. A beam search knows by itself.
  bool AddToken(int sample_index, const ScoredToken& token);

  // No token of the sample follows.
  void FinishSample(const Finished& finished);

  // All samples are over. False for a beam search, which stop strings alone do not end.
  bool are_all_finished() const;

  // The request is over. `is_whole`: what has not finished by itself was aborted; else it breaks off.
  void End(bool is_whole);

  // There is a response to be sent. After the End, is_last tells whether it is the last.
  bool has_next() const { return FindNext().has_value(); }
  bool is_last() const;
  // Makes it ready, and StartNext begins another. REQUIRES: has_next(). Valid until then.
  const v1::GenerateResponse* Next();
  void StartNext();

  int num_prompt_tokens() const { return num_prompt_tokens_; }
  int num_cached_tokens() const { return num_cached_tokens_; }
  // That the samples have so far, whether they are returned or not.
  int num_output_tokens() const;
  // Why the samples ended, each reason once: "stop", "stop,length".
  std::string finish_reasons() const;
  int num_samples() const { return static_cast<int>(samples_.size()); }
  // One step brings no more tokens.
  int64_t max_step_tokens() const;

 private:
  struct Sample {
    ResponseBuilder builder;
    bool is_sent = false;    // In part or as a whole.
    bool is_ranked = false;  // Of a beam search: its place is final.
  };

  bool picks_best() const { return num_returned_ < num_samples(); }
  // Where in order_ the next sample is that may send what it has.
  std::optional<int> FindNext(int first = 0) const;
  bool MaySend(int sample_index) const;
  void PickBest();
  void BeginSample(int index, int sample_index);

  const std::shared_ptr<const ServedModel> model_;
  const std::string name_;
  const bool is_beam_search_;
  const int num_returned_;
  const int max_tokens_;
  const uint64_t seed_;
  const int num_prompt_tokens_;
  int num_cached_tokens_ = 0;
  std::string prompt_text_;                                                   // Of the echo.
  google::protobuf::RepeatedPtrField<v1::PositionLogprobs> prompt_logprobs_;  // Empty, or one per prompt token.
  std::vector<Sample> samples_;
  std::vector<int> order_;  // Indices into samples_ by GenerateResponse.index.
  bool has_ended_ = false;
  bool is_whole_ = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_
