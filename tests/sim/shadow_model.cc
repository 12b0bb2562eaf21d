#include "tests/sim/shadow_model.h"

#include <algorithm>

namespace quire {
namespace {

// SplitMix64's finaliser.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

TokenId ShadowModel::Sample(uint64_t prefix_hash, uint64_t seed, uint32_t sample_index) const {
  const uint64_t draw = Mix(prefix_hash + Mix(seed + Mix(sample_index + 1)));
  if (draw % 100 < static_cast<uint64_t>(stop_percent)) return kStopToken;
  return 1 + static_cast<TokenId>((draw >> 32) % (vocab_size - 1));
}

uint64_t ExtendPrefix(uint64_t prefix_hash, TokenId token) {
  return Mix(prefix_hash * 3 + static_cast<uint64_t>(token) + 1);
}

ScoredToken ScorePromptToken(uint64_t prefix_hash, TokenId token) {
  ScoredToken scored;
  scored.token = token;
  scored.logprob = -static_cast<float>(ExtendPrefix(prefix_hash, token) % 1024) / 64;
  scored.rank = 1;
  return scored;
}

SoloOutput SoloRun(const ShadowModel& model, const Request& request) {
  SoloOutput output;
  uint64_t prefix = ExtendPrefix(kEmptyPrefix, request.prompt[0]);
  for (size_t i = 1; i < request.prompt.size(); ++i) {
    output.prompt_logprobs.push_back(ScorePromptToken(prefix, request.prompt[i]));
    prefix = ExtendPrefix(prefix, request.prompt[i]);
  }
  const std::vector<TokenId>& stops = request.stop_token_ids;
  for (int i = 0; i < request.max_tokens; ++i) {
    const TokenId token = model.Sample(prefix, request.sampling.seed, /*sample_index=*/0);
    output.tokens.push_back(token);
    if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
      output.reason = FinishReason::kStopToken;
      break;
    }
    prefix = ExtendPrefix(prefix, token);
  }
  return output;
}

}  // namespace quire
