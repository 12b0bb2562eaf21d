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

// How to draw one token from one row of logits. Host memory throughout; ids outside the vocabulary are ignored. The
// steps, in order:
//   1. bias: logit += bias.
//   2. penalties. Repetition, over prompt and output, as Hugging Face: a positive logit is divided by it, a negative
//      one multiplied. Then frequency * output_count and presence (if output_count > 0) are subtracted, as vLLM and
//      OpenAI.
//   3. masks: tokens outside `allowed` (unless it is empty) and tokens in `masked` cannot be drawn. If that leaves no
//      token, `masked` is not applied; if `allowed` leaves none, the draw is token 0.
//   4. temperature 0: the largest logit, ties to the lowest id. Otherwise logits are divided by the temperature, and
//   5. top-k keeps exactly k tokens (ties to the lowest ids);
//   6. top-p keeps, by falling probability among those (ties to the lowest ids), each token before which less than
//      top_p of their mass has been seen; at least one;
//   7. min-p keeps tokens with at least min_p times the largest probability;
//   8. Gumbel-max: the largest logit + noise. The noise of a token is a pure function of (seed, position, token):
//      -ln(-ln(1 - u)), u from word token % 4 of Philox4x32-10 with key seed and counter (position, 0, token / 4, 0).
//      Ties to the lowest id.
//
// A row with num_candidates draws nothing: it lists the tokens that beam search may go on with. Steps 1 to 3 are then
// applied to the log softmax of the raw logits instead of to the logits (so a repetition penalty multiplies, as
// logprobs are below 0 but for what a bias adds; Hugging Face treats the scores of beams the same way), and the
// num_candidates largest are the answer, ties to the lowest ids. Masked tokens are not among them.
struct SamplingRow {
  float temperature;         // >= 0
  int top_k;                 // 0: all.
  float top_p;               // In (0, 1]; 1: all.
  float min_p;               // In [0, 1]; 0: all.
  float presence_penalty;    // 0: none.
  float frequency_penalty;   // 0: none.
  float repetition_penalty;  // > 0; 1: none.
  uint64_t seed;
  uint32_t position;  // Of the token to draw.
  const TokenCount* counts;  // [num_counts], each token at most once; may be empty when no penalty is set.
  int num_counts;
  const TokenBias* biases;  // [num_biases]
  int num_biases;
  const int32_t* allowed;  // [num_allowed], each token at most once.
  int num_allowed;
  const int32_t* masked;  // [num_masked] tokens that must not be drawn now (bad words, end tokens before min_tokens).
  int num_masked;
  int num_top;          // -1: no logprobs; k: the chosen token's and the k best, k <= max_top.
  int32_t given_token;  // -1: draw. Otherwise only score this token (prompt logprobs).
  int num_candidates;   // 0: draw. Otherwise list this many, at most max_top; num_top and given_token are -1.
  // Where the backend keeps the drawn token for batches that come before the host knows it (kernels/batch.h): one of
  // Backend::KeepDrawnTokens. -1: nowhere.
  int32_t drawn_place = -1;
};

// Scores are of the raw logits. logprob and rank are 0 when the row asks for neither logprobs nor a given token.
struct SamplingResult {
  // -1: the row has an infinite or NaN logit, so that nothing can be said; the rest is 0. Of a row with candidates the
  // best of them, 0 when there are none.
  int32_t token;
  float logprob;  // log softmax of the raw logits at `token`.
  int32_t rank;   // 1 + number of tokens with a larger raw logit (equal logits: with a smaller id).
};

// The arrays of the host are read by the time that Backend::Sample returns; results and top are written later, and best
// lie in memory of Backend::AllocateHost.
struct SamplingArgs {
  const float* logits;        // [number of rows of logits, vocab_size], backend memory.
  const int32_t* logit_rows;  // [num_rows], the row of logits that each row reads; null: its own.
  int num_rows;
  int vocab_size;
  const SamplingRow* rows;  // [num_rows]
  SamplingResult* results;  // [num_rows]
  // [num_rows, max_top], each row's best tokens or candidates, best first, token -1 after the last; null when max_top
  // is 0. Logprobs of candidates are what the steps made of them.
  ScoredCandidate* top;
  int max_top;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_SAMPLING_H_
