// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SAMPLING_H_
#define QUIRE_KERNELS_SAMPLING_H_

#include <cfloat>
#include <cstdint>

#include "kernels/philox.h"

namespace quire {

// A token and how often it occurred.
struct TokenCount {
  int32_t token;
  int32_t prompt_count;
  int32_t output_count;
};

struct TokenBias {
  int32_t token;
  float bias;
};

struct ScoredCandidate {
  int32_t token;
  float logprob;
};

// The numbers of a row that say how to draw. The values here change nothing.
struct SamplingNumbers {
  float temperature = 1;
  float top_n_sigma = 0;  // 0 keeps all tokens.
  int top_k = 0;          // 0 keeps all tokens.
  float top_p = 1;
  float min_p = 0;
  float xtc_probability = 0;
  float xtc_threshold = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
};

// One of these numbers, and the values that a row may have. quire.v1.RowSampling has a field of this name.
struct SamplingNumber {
  const char* name;
  float SamplingNumbers::*member;
  float low, high;
  bool has_low;  // The range includes `low`.
};

// Lists all numbers but top_k.
inline constexpr SamplingNumber kSamplingNumbers[] = {
    {"temperature", &SamplingNumbers::temperature, 0, FLT_MAX, true},
    {"top_n_sigma", &SamplingNumbers::top_n_sigma, 0, FLT_MAX, true},
    {"top_p", &SamplingNumbers::top_p, 0, 1, false},
    {"min_p", &SamplingNumbers::min_p, 0, 1, true},
    {"xtc_probability", &SamplingNumbers::xtc_probability, 0, 1, true},
    {"xtc_threshold", &SamplingNumbers::xtc_threshold, 0, 1, true},
    {"presence_penalty", &SamplingNumbers::presence_penalty, -FLT_MAX, FLT_MAX, true},
    {"frequency_penalty", &SamplingNumbers::frequency_penalty, -FLT_MAX, FLT_MAX, true},
    {"repetition_penalty", &SamplingNumbers::repetition_penalty, 0, FLT_MAX, false},
};

// Says how to draw one token from one row of logits. All arrays are in host memory. Ids outside the vocabulary are
// ignored. The steps, in order:
//   1. bias: logit += bias.
//   2. penalties. The repetition penalty covers prompt and output, as in Hugging Face: a positive logit is divided by
//      the penalty, a negative one is multiplied by it. Then frequency * output_count is subtracted, and presence if
//      output_count > 0, as in vLLM and OpenAI.
//   3. masks: tokens outside `allowed` (unless it is empty) and tokens in `masked` cannot be drawn. If that leaves no
//      token, `masked` is not applied. If `allowed` alone leaves no token, the draw is token 0.
//   4. temperature: 0 draws the largest logit, ties to the lowest id. Otherwise logits are divided by the temperature,
//      and steps 5 to 10 follow.
//   5. top-n-sigma keeps tokens whose value is at least max - n * sigma. max is the largest value, and sigma is the
//      standard deviation of all tokens that step 3 leaves: sqrt(sum of (value - mean)^2 / number of tokens). It is
//      from Tang et al. 2024, "Top-nsigma: Not All Logits Are You Need" (arXiv 2411.07641). The sampler top_n_sigma of
//      llama.cpp does the same before the temperature, which leaves the same tokens.
//   6. top-k keeps exactly k tokens (ties to the lowest ids).
//   7. top-p goes through the remaining tokens by falling probability (ties to the lowest ids). It keeps a token if the
//      tokens before it have less than top_p of the mass of all remaining tokens. At least one token is kept.
//   8. min-p keeps tokens with at least min_p times the largest probability.
//   9. XTC, if ExcludesTopChoices: the tokens with at least xtc_threshold of the mass of all remaining tokens are
//      dropped, except the least likely one of them (ties: the highest id). The sampler xtc of llama.cpp and apply_xtc
//      of mlx-lm do the same. It is from text-generation-webui (pull request 6335).
//  10. Gumbel-max draws the token with the largest logit + noise, ties to the lowest id. The noise of a token is a pure
//      function of (seed, position, token): -ln(-ln(1 - u)). u comes from word token % 4 of Philox4x32-10 with key seed
//      and counter (position, 0, token / 4, 0).
//
// A row with num_candidates draws nothing. It lists the tokens with which beam search may continue. Steps 1 to 3 are
// then applied to the log softmax of the raw logits instead of to the logits. The answer is the num_candidates largest
// values, ties to the lowest ids, without masked tokens. A repetition penalty multiplies these values, because logprobs
// are negative unless a bias has raised them. Hugging Face treats the scores of beams the same way.
struct SamplingRow : SamplingNumbers {
  uint64_t seed;
  uint32_t position;         // Position of the token to draw.
  const TokenCount* counts;  // [num_counts], each token at most once; may be empty when no penalty is set.
  int num_counts;
  const TokenBias* biases;  // [num_biases]
  int num_biases;
  const int32_t* allowed;  // [num_allowed], each token at most once.
  int num_allowed;
  const int32_t* masked;  // [num_masked] tokens that must not be drawn (bad words, end tokens before min_tokens).
  int num_masked;
  int num_top;          // -1: no logprobs; k: logprobs of the chosen token and of the k best tokens, k <= max_top.
  int32_t given_token;  // -1: draw. Otherwise the row only scores this token (prompt logprobs).
  int num_candidates;   // 0: draw. Otherwise the number of listed candidates, at most max_top; num_top and given_token
                        // are -1.
  // The place of Backend::KeepDrawnTokens where the backend keeps the drawn token. Batches that are sent before the
  // host knows the token can then refer to it (kernels/batch.h). -1 means that it is not kept.
  int32_t drawn_place = -1;
  // If not -1: the last token of the output is the one that was drawn last for this place of Backend::KeepDrawnTokens.
  // The host does not know it yet, so `counts` lacks it. The penalties count it. Only asynchronous backends get such
  // rows.
  int32_t pending_place = -1;
};

// Returns whether step 9 changes this draw. It is a pure function of (seed, position): u < xtc_probability, where u
// comes from word 0 of Philox4x32-10 with key seed and counter (position, 0, 0, 1), which no noise has.
inline bool ExcludesTopChoices(const SamplingRow& row) {
  if (row.xtc_probability == 0) return false;
  const uint32_t word = Philox4x32({{row.position, 0, 0, 1}}, row.seed).word[0];
  return (static_cast<double>(word) + 0.5) * 0x1p-32 < static_cast<double>(row.xtc_probability);
}

// Scores refer to the raw logits. logprob and rank are 0 when the row asks for neither logprobs nor a given token.
struct SamplingResult {
  // The drawn token. -1 means that the row has an infinite or NaN logit; then the other fields are 0. For a row with
  // candidates this is the best candidate, or 0 when there are none.
  int32_t token;
  float logprob;  // Log softmax of the raw logits at `token`.
  int32_t rank;   // 1 + number of tokens with a larger raw logit, or with an equal logit and a smaller id.
};

// Backend::Sample has read the host arrays when it returns. It writes `results` and `top` later; they should lie in
// memory of Backend::AllocateHost.
struct SamplingArgs {
  const float* logits;        // [number of rows of logits, vocab_size], backend memory.
  const int32_t* logit_rows;  // [num_rows], the row of logits that each row reads; null: row i reads logits row i.
  int num_rows;
  int vocab_size;
  const SamplingRow* rows;  // [num_rows]
  SamplingResult* results;  // [num_rows]
  // [num_rows, max_top], the best tokens or candidates of each row, best first; token -1 follows the last one. It is
  // null when max_top is 0. Logprobs of candidates are the values after steps 1 to 3.
  ScoredCandidate* top;
  int max_top;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_SAMPLING_H_
