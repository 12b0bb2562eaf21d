// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
#define QUIRE_SCHEDULER_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/sampling_fields.h"
#include "scheduler/guide.h"

namespace quire {

struct LogitBias {
  TokenId token;
  float bias;  // Added to the logit before temperature.

  bool operator==(const LogitBias&) const = default;
};

// How the hidden states of a prompt become one vector, its embedding. The numbers are those of quire.v1.PoolingKind.
enum class Pooling {
  kNone = 0,  // There is no embedding.
  kLastToken = 1,
  kMean = 2,  // Of all tokens.
  kFirstToken = 3,
};

// Returns whether the worker adds the hidden states of the tokens slice by slice. Then all tokens must be computed in
// one row.
inline bool PoolsEarlierTokens(Pooling pooling) {
  return pooling == Pooling::kMean || pooling == Pooling::kFirstToken;
}

// Says how a worker picks the next token of a sequence: quire.v1.SamplingParams after validation. The scheduler does
// not read the values.
struct SamplingParams : DrawParams {
  uint64_t seed = 0;  // The key of every draw of the request.
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // When empty, all tokens are allowed.
  std::vector<std::vector<TokenId>> bad_words;  // Token sequences that must not be completed.
  std::vector<TokenId> min_tokens_masked_ids;  // End and stop tokens, which are masked until min_tokens were generated.
  int min_tokens = 0;
  int num_logprobs = -1;         // Top logprobs per generated token. 0: only that of the chosen token; -1: none.
  int num_prompt_logprobs = -1;  // The same for the tokens of the prompt.
  // When above 0, no token is drawn: beam search picks one of this number of candidates. Their logprobs are from
  // the model, to which bias, penalties and masks are then applied as Hugging Face does for beams. The steps of a draw
  // that follow are left out.
  int num_candidates = 0;
  // Unless it is kNone, no token is drawn: the slice that ends the prompt gives an embedding.
  Pooling pooling = Pooling::kNone;
  std::shared_ptr<const Guide> guide = nullptr;  // Null: the output may be anything.

  bool operator==(const SamplingParams&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
