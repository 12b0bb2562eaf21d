#ifndef QUIRE_KERNELS_SAMPLING_H_
#define QUIRE_KERNELS_SAMPLING_H_

#include <cstdint>

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

// How to draw one token from one row of logits. The steps, in order: bias, masks, penalties (repetition, then frequency
// and presence), temperature, top-k, top-p, min-p, Gumbel-max. Host memory throughout.
struct SamplingRow {
  float temperature;  // 0: the largest processed logit, ties to the lowest id.
  int top_k;          // 0: all.
  float top_p;        // 1: all.
  float min_p;        // 0: all.
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  uint64_t seed;      // Philox key.
  uint32_t position;  // Of the token to draw; with sample_index it is the Philox counter.
  uint32_t sample_index;
  const TokenCount* counts;  // [num_counts], each token at most once; may be empty when no penalty is set.
  int num_counts;
  const TokenBias* biases;  // [num_biases]
  int num_biases;
  const int32_t* allowed;  // [num_allowed]; empty: all.
  int num_allowed;
  const int32_t* masked;  // [num_masked] tokens that must not be drawn now (bad words, end tokens before min_tokens).
  int num_masked;
  int num_top;          // -1: no logprobs; k: the chosen token's and the k best.
  int32_t given_token;  // -1: draw. Otherwise only score this token (prompt logprobs).
};

struct SamplingResult {
  int32_t token;
  float logprob;  // log softmax of the raw logits at `token`.
  int32_t rank;   // 1 + number of tokens with a larger raw logit (equal logits: with a smaller id).
};

struct SamplingArgs {
  const float* logits;  // [num_rows, vocab_size], backend memory.
  int num_rows;
  int vocab_size;
  const SamplingRow* rows;  // [num_rows]
  SamplingResult* results;  // [num_rows]
  ScoredCandidate* top;     // [num_rows, max_top], raw logprobs, best first; null when max_top is 0.
  int max_top;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_SAMPLING_H_
