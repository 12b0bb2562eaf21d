// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
#define QUIRE_SCHEDULER_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "scheduler/guide.h"

namespace quire {

struct LogitBias {
  TokenId token;
  float bias;  // Added to the logit before temperature.

  bool operator==(const LogitBias&) const = default;
};

// How a worker picks the next token of a sequence. The service edge validates the values, and the scheduler does not
// read them. The worker applies the steps in this order: logit_bias, allowed_token_ids, bad_words and min_tokens masks,
// repetition, frequency and presence penalties, temperature, top_k, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0f;  // >= 0. 0 is greedy: it picks the largest logit, and of equal ones the lowest token id.
  int top_k = 0;             // Keep the k largest logits. 0 keeps all.
  float top_p = 1.0f;        // (0, 1]. Keep the smallest set of tokens whose probability reaches p.
  float min_p = 0.0f;        // [0, 1]. Drop tokens that are less likely than min_p times the likeliest token.
  float presence_penalty = 0.0f;    // [-2, 2]. Subtracted once from the logit of each generated token.
  float frequency_penalty = 0.0f;   // [-2, 2]. Subtracted once per occurrence among the generated tokens.
  float repetition_penalty = 1.0f;  // > 0. Divides positive and multiplies negative logits of prompt and output tokens.
  uint64_t seed = 0;                // The key of every draw of the request.
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // When empty, all tokens are allowed.
  std::vector<std::vector<TokenId>> bad_words;  // Token sequences that must not be completed.
  std::vector<TokenId> min_tokens_masked_ids;  // End and stop tokens, which are masked until min_tokens were generated.
  int min_tokens = 0;
  int num_logprobs = -1;         // Top logprobs per generated token. 0: only that of the chosen token; -1: none.
  int num_prompt_logprobs = -1;  // The same for the tokens of the prompt.
  // When above 0, the number of candidates of which beam search picks one; no token is drawn. Their logprobs come from
  // the model; bias, penalties and masks are then applied as Hugging Face does for beams. Temperature, top_k, top_p and
  // min_p have no effect.
  int num_candidates = 0;
  std::shared_ptr<const Guide> guide = nullptr;  // Null: the output may be anything.

  bool operator==(const SamplingParams&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
