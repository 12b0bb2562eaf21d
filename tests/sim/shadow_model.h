#ifndef QUIRE_TESTS_SIM_SHADOW_MODEL_H_
#define QUIRE_TESTS_SIM_SHADOW_MODEL_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// A language model that is a hash: the next token depends on every token before it and on the request's seed, as with a
// real model and counter-based draws, so whoever reads a wrong slot samples wrong tokens.
struct ShadowModel {
  static constexpr TokenId kStopToken = 0;

  int vocab_size = 1000;
  int stop_percent = 0;  // How often kStopToken is sampled.

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

// What a worker reports about `token` after the prefix.
ScoredToken ScorePromptToken(uint64_t prefix_hash, TokenId token);

struct SoloSample {
  std::vector<TokenId> tokens;  // Generated ones.
  FinishReason reason = FinishReason::kLength;
  float score = 0;  // Of a hypothesis.

  bool operator==(const SoloSample&) const = default;
};

struct SoloOutput {
  std::vector<SoloSample> samples;  // Or the hypotheses of a beam search, best first.
  // Of positions 1, 2, ... of the prompt, when the request asks for them.
  std::vector<ScoredToken> prompt_logprobs;
};

// What a request generates when it has the model to itself.
SoloOutput SoloRun(const ShadowModel& model, const Request& request);

// The tokens of its only sample.
std::vector<TokenId> SoloTokens(const ShadowModel& model, const Request& request);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHADOW_MODEL_H_
