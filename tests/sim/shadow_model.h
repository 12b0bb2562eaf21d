// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SHADOW_MODEL_H_
#define QUIRE_TESTS_SIM_SHADOW_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// A language model that is a hash function. As with a real model, the next token depends on all earlier tokens and on
// the request's seed. So a row that reads a wrong slot samples wrong tokens.
struct ShadowModel {
  static constexpr TokenId kStopToken = 0;

  int vocab_size = 1000;
  int stop_percent = 0;  // How often kStopToken is sampled, in percent.
  int numerics = 0;      // Models with other numerics give other tokens.

  TokenId Sample(uint64_t prefix_hash, uint64_t seed) const;

  // The `count` best next tokens, best first. Logprobs are multiples of 1/64, so that sums do not depend on their
  // order.
  std::vector<TokenLogprob> Candidates(uint64_t prefix_hash, int count) const;
};

// SplitMix64's finaliser.
constexpr uint64_t MixBits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr uint64_t kEmptyPrefix = 0x9e3779b97f4a7c15;

constexpr uint64_t ExtendPrefix(uint64_t prefix_hash, TokenId token) {
  return MixBits(prefix_hash * 3 + static_cast<uint64_t>(token) + 1);
}

// Returns what a worker reports about `token` after the prefix, in the prompt or behind it.
ScoredToken ScoreToken(uint64_t prefix_hash, TokenId token);

// What a worker has added for the embedding of a prompt. The hidden state of a token stands for the hash of its prefix.
// The digest depends on their order and number, and none may be missing or doubled.
class ShadowEmbedding {
 public:
  void Add(uint64_t prefix_hash) { digest_ = MixBits(digest_ * 3 + prefix_hash); }
  // Four whole numbers below 2^16, which floats keep exactly.
  std::vector<float> Values() const;

 private:
  uint64_t digest_ = 0;
};

// Returns whether the embedding needs the hidden state at the position. `is_last` tells the last token of the prompt.
bool IsPooled(Pooling pooling, int position, bool is_last);

// From this number of generated tokens on, the next token comes from another model.
struct ModelChange {
  int num_generated;
  ShadowModel model;
};

// The model that gives the token after `num_generated` ones, if `first` gives the first one. The changes are in the
// order in which they were made.
const ShadowModel& ModelAt(const ShadowModel& first, absl::Span<const ModelChange> changes, int num_generated);

struct SoloSample {
  std::vector<TokenId> tokens;  // The generated tokens.
  FinishReason reason = FinishReason::kLength;
  float score = 0;                       // The score of a hypothesis.
  std::vector<ScoredToken> scores = {};  // Of the tokens of a sample, if the request asks for logprobs.

  bool operator==(const SoloSample&) const = default;
};

struct SoloOutput {
  std::vector<SoloSample> samples;  // The samples, or the hypotheses of a beam search, best first.
  // The logprobs of the prompt's positions 1, 2, ..., if the request asks for them.
  std::vector<ScoredToken> prompt_logprobs;
  std::vector<float> embedding;  // Empty unless the request has a pooling. Its one sample has the token 0 then.
};

// Returns what a request generates when it runs alone. The changes are the same for all samples or beams.
SoloOutput SoloRun(const ShadowModel& model, const Request& request, absl::Span<const ModelChange> changes = {});

// The same for one of several samples. REQUIRES: the request is no beam search.
SoloSample SoloRunOfSample(const ShadowModel& model, const Request& request, int sample_index,
                           absl::Span<const ModelChange> changes);

// The same for a request with one sample: returns its tokens.
std::vector<TokenId> SoloTokens(const ShadowModel& model, const Request& request);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHADOW_MODEL_H_
