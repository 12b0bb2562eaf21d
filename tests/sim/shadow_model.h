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

  TokenId Sample(uint64_t prefix_hash, uint64_t seed, uint32_t sample_index) const;
};

constexpr uint64_t kEmptyPrefix = 0x9e3779b97f4a7c15;

uint64_t ExtendPrefix(uint64_t prefix_hash, TokenId token);

// What a worker reports about `token` after the prefix.
ScoredToken ScorePromptToken(uint64_t prefix_hash, TokenId token);

struct SoloOutput {
  std::vector<TokenId> tokens;  // Generated ones.
  FinishReason reason = FinishReason::kLength;
  std::vector<ScoredToken> prompt_logprobs;  // Of positions 1, 2, ... of the prompt.
};

// What a request generates when it has the model to itself.
SoloOutput SoloRun(const ShadowModel& model, const Request& request);

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHADOW_MODEL_H_
