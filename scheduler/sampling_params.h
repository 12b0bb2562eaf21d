#ifndef QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
#define QUIRE_SCHEDULER_SAMPLING_PARAMS_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace quire {

struct LogitBias {
  TokenId token;
  float bias;  // Added to the logit before temperature.

  bool operator==(const LogitBias&) const = default;
};

// How a worker picks the next token of a sequence. Validated at the service edge; the scheduler passes it on unread.
// Steps are applied in this order: logit_bias, allowed_token_ids, bad_words and min_tokens masks, repetition, frequency
// and presence penalties, temperature, top_k, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; 0 is greedy: the largest logit, ties to the lowest token id.
  int top_k = 0;                    // Keep the k largest logits; 0 keeps all.
  float top_p = 1.0f;               // (0, 1]; keep the smallest set of tokens whose probability reaches p.
  float min_p = 0.0f;               // [0, 1]; drop tokens less likely than min_p times the likeliest.
  float presence_penalty = 0.0f;    // [-2, 2]; subtracted once from the logit of each generated token.
  float frequency_penalty = 0.0f;   // [-2, 2]; subtracted once per occurrence among the generated tokens.
  float repetition_penalty = 1.0f;  // > 0; divides positive and multiplies negative logits of prompt and output tokens.
  uint64_t seed = 0;                // Key of every draw of the request.
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> allowed_token_ids;       // Empty: all are allowed.
  std::vector<std::vector<TokenId>> bad_words;  // Token sequences that must not be completed.
  std::vector<TokenId> min_tokens_masked_ids;   // End and stop tokens, masked until min_tokens were generated.
  int min_tokens = 0;
  int num_logprobs = -1;         // Top logprobs per generated token; 0: only the chosen one's; -1: none.
  int num_prompt_logprobs = -1;  // The same for the tokens of the prompt.
  // Above 0 nothing is drawn: beam search picks among this many candidates. Their logprobs are those of the model, to
  // which bias, penalties and masks are then applied as Hugging Face does with beams; temperature, top_k, top_p and
  // min_p do not count.
  int num_candidates = 0;

  bool operator==(const SamplingParams&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_SAMPLING_PARAMS_H_
