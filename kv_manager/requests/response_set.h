// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_
#define QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/engine/served_model.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/response_builder.h"
#include "quire/v1/inference.pb.h"
#include "scheduler/step_output.h"
#include "scheduler/step_plan.h"

namespace quire {

// Turns the tokens of one request into responses. Each response has tokens of one sample. Tokens are sent as they come,
// with two exceptions: when the best samples are to be picked, all of them wait for the end; and of a beam search only
// the best hypothesis is sent before the end, because the certain parts of all hypotheses are equal. Not thread-safe.
class ResponseSet {
 public:
  // `name` becomes GenerateResponse.request_id.
  ResponseSet(std::shared_ptr<const ServedModel> model, std::string name, const ValidRequest& request);

  // The responses are for a client that has received this much already. Each index is below num_returned() and appears
  // once. Called before everything else.
  void SkipReceived(const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received);

  // The first response gets this token.
  void SetResumeToken(std::string token) { resume_token_ = std::move(token); }

  void SetCachedTokens(int num_tokens) { num_cached_tokens_ = num_tokens; }

  // The number of tokens that each of the pins holds. Without it, nothing is pinned. [number of pins of the request]
  void SetPinnedTokens(std::vector<int> num_tokens) { pinned_tokens_ = std::move(num_tokens); }

  // Adds logprobs of the prompt tokens from `first_position` on. Called before the first AddToken.
  void AddPromptLogprobs(int first_position, const std::vector<ScoredToken>& tokens);

  // The tokens of a sample from this position on have other numerics. The first change of a sample counts. Called
  // before the token at the position is added.
  void SetNumericsChange(int sample_index, int position) { samples_[sample_index].builder.SetNumericsChange(position); }

  // Returns whether a sample is not the one that the client has received: its numerics did not change where the client
  // was told. No response is sent then.
  bool contradicts_client() const { return contradicts_client_; }

  // Adds the next token of a sample, unless the sample is finished. Returns true when the token completes a stop
  // string, which ends the sample, so that the caller must tell the engine. False for a beam search, which looks for
  // stop strings itself.
  bool AddToken(int sample_index, const ScoredToken& token);

  // No token of this sample follows.
  void FinishSample(const Finished& finished);

  // Returns whether all samples are finished. False for a beam search, which only the engine ends.
  bool are_all_finished() const;
  bool is_finished(int sample_index) const { return samples_[sample_index].builder.is_finished(); }

  // The request is over. If `is_whole`, samples that have not finished were aborted; otherwise the request broke off.
  void End(bool is_whole);

  // Returns whether there is a response to send. After End, is_last tells whether it is the last one.
  bool has_next() const { return FindNext().has_value(); }
  bool is_last() const;
  // Completes the next response, which is valid until StartNext begins another one. REQUIRES: has_next().
  const v1::GenerateResponse* Next();
  void StartNext();

  uint64_t seed() const { return seed_; }  // Seed of the first sample.
  int num_prompt_tokens() const { return num_prompt_tokens_; }
  int num_cached_tokens() const { return num_cached_tokens_; }
  // The tokens of all samples so far, whether the samples return or not.
  int num_output_tokens() const;
  // Returns why the samples have ended, each reason once: "stop", "stop,length".
  std::string finish_reasons() const;
  // Returns whether a sample has ended because the request was aborted.
  bool is_aborted() const;
  int num_samples() const { return static_cast<int>(samples_.size()); }
  // The position of the next token of a sample.
  int next_position(int sample_index) const { return samples_[sample_index].builder.next_position(); }
  // The samples or hypotheses that the client gets. With fewer than there are samples, the best ones are picked.
  int num_returned() const { return num_returned_; }
  bool picks_best() const { return num_returned_ < num_samples(); }
  // The most tokens that one step can bring.
  int64_t max_step_tokens() const;
  // About how much memory the object uses.
  int64_t num_bytes() const;

 private:
  struct Sample {
    ResponseBuilder builder;
    bool is_sent = false;    // A response of this sample was sent.
    bool is_ranked = false;  // In a beam search, the rank of the hypothesis is final.
  };

  enum class Phase {
    kRunning,
    kWhole,      // The request has ended, and its samples with it.
    kBrokenOff,  // The request has ended before its samples.
  };

  // The index in order_ of the next sample that may send, from `first` on.
  std::optional<int> FindNext(int first = 0) const;
  bool MaySend(int sample_index) const;
  void PickBest();
  void SetPromptUsage(v1::Usage* usage) const;
  void BeginSample(int index, int sample_index);
  // Makes the entries of the prompt, which have no logprobs yet.
  void BeginPromptLogprobs(const ValidRequest& request);
  // The client has this much of a sample from an earlier stream.
  void Continue(int sample_index, const ValidRequest::Continued& continued);

  const std::shared_ptr<const ServedModel> model_;
  const std::string name_;
  const bool is_beam_search_;
  const int num_returned_;
  const int max_tokens_;
  const uint64_t seed_;
  const int num_prompt_tokens_;
  int num_cached_tokens_ = 0;
  std::vector<int> pinned_tokens_;
  bool shows_prompt_usage_;  // The next response is the first one of a request with pins.
  std::string prompt_text_;  // The echo of the prompt.
  // It is empty or has one entry per prompt token.
  google::protobuf::RepeatedPtrField<v1::PositionLogprobs> prompt_logprobs_;
  std::vector<Sample> samples_;
  std::vector<int> order_;          // Indices into samples_ by GenerateResponse.index.
  std::vector<bool> has_received_;  // [num_samples]: the client has the end of the sample of this index.
  std::string resume_token_;        // Set until it is sent.
  Phase phase_ = Phase::kRunning;
  bool contradicts_client_ = false;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_RESPONSE_SET_H_
