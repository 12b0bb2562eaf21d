// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_REQUEST_H_
#define QUIRE_SCHEDULER_REQUEST_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/beam_params.h"
#include "scheduler/sampling_params.h"

namespace quire {

// Workers of one generation have the same model and give the same tokens for the same request. A token id has a meaning
// only within a generation. See ModelRegistry.
enum class GenerationId : uint64_t {};

// One call of Generate as the scheduler sees it: token ids come in and token ids go out. Text, stop strings, deadlines
// and streaming are the business of the layers above. Once a request is submitted, only its generation may change.
struct Request {
  RequestId id;
  std::vector<TokenId> prompt;  // There is at least one token.
  GenerationId generation{0};   // The workers on which it may run. The scheduler does not read it.
  SamplingParams sampling;
  int max_tokens = 16;  // The largest number of tokens that each sequence generates; >= 1.
  // Only the prompt is wanted. The step that ends it draws a token all the same, which is for nobody, so the prompt may
  // fill the context. If sampling.pooling is set, it gives an embedding and counts as having drawn token 0. REQUIRES:
  // max_tokens is 1, and there is no beam search; with a pooling, there is one sample, which wants no logprobs, has no
  // guide and no stop tokens.
  bool is_prompt_only = false;
  std::vector<TokenId> stop_token_ids;  // A sequence ends after one of these. They include the end-of-sequence ids.

  // How many sequences continue the prompt independently; >= 1. Sample i draws what a
  // request with seed + i would draw.
  int num_samples = 1;
  // When set, the request is a beam search and draws no tokens. REQUIRES: num_samples is 1 and sampling.num_candidates
  // 0.
  std::optional<BeamParams> beam;
  std::shared_ptr<const StopCondition> beam_stop;  // May be null.

  // A sample that continues where an earlier scheduler has left it.
  struct ContinuedSample {
    int sample_index;
    std::vector<TokenId> tokens;  // Generated tokens, which do not end it.
  };
  // If there are any, the request has these samples in place of num_samples new ones, and the other ones have ended
  // before. REQUIRES: the request is no beam search and wants no logprobs of the prompt; the indices are below
  // num_samples and ascend.
  std::vector<ContinuedSample> continued = {};

  // Asks to keep the first tokens of the prompt in the prefix cache, from when the prompt is computed. The scheduler
  // does not read it.
  struct PrefixPin {
    int num_tokens;
    int64_t ttl_us;
  };
  std::vector<PrefixPin> pins = {};

  // Cached prefixes are shared only among requests with the same salt.
  std::string cache_salt;
  bool bypass_prefix_cache = false;  // The request neither uses cached prefixes nor adds any.

  // The worker keeps this with the rows of the request, for the next manager. Null: the request ends with this one.
  // The scheduler does not read it.
  std::shared_ptr<const std::string> record = nullptr;

  int priority = 0;    // Under the priority policy the smallest value is served first.
  std::string tenant;  // Under the fair-share policy tenants get equal numbers of tokens, by weight.
  // Time of the caller's clock. It does not affect the order of service; it measures how long the request waits.
  int64_t arrival_us = 0;
  // Time of the same clock. The scheduler does not read it: the caller cancels the request.
  int64_t deadline_us = std::numeric_limits<int64_t>::max();
};

// The number of rows that the request runs in: one per sample or beam.
inline int NumRows(const Request& request) {
  return request.beam.has_value() ? request.beam->width : request.num_samples;
}

// The number of samples, or of hypotheses that a beam search returns.
inline int NumOutputs(const Request& request) {
  return request.beam.has_value() ? request.beam->num_return : request.num_samples;
}

// The number of tokens with which the request comes.
inline int NumKnownTokens(const Request& request) {
  size_t num_tokens = request.prompt.size();
  for (const Request::ContinuedSample& sample : request.continued) num_tokens += sample.tokens.size();
  return static_cast<int>(num_tokens);
}

enum class FinishReason {
  kLength,     // max_tokens were generated, or the model's context is full.
  kStopToken,  // One of stop_token_ids was generated. It is the last token that is emitted.
  kCancelled,
  kDeadline,
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_REQUEST_H_
