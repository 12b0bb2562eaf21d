// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SAMPLING_ARGS_H_
#define QUIRE_KERNELS_CUDA_SAMPLING_ARGS_H_

#include <cstdint>

#include "kernels/sampling.h"

// The arguments of the sampling kernel: the rows of kernels/sampling.h after all decisions that need no logits.

namespace quire::cuda {

// The score is multiplied by `factor` if it is negative, otherwise divided by it. Then `frequency` and `presence` are
// subtracted.
struct TokenPenalty {
  int32_t token;
  float factor;     // The repetition penalty; 1 for a token that did not occur.
  float frequency;  // frequency_penalty * output_count
  float presence;   // presence_penalty, or 0 if the token is not in the output.
  // frequency_penalty * (output_count + 1), for the case that the row's pending token is this one.
  float frequency_with_pending;
};

// The masks are applied in this way. It has been checked before that `masked` leaves a token.
enum class MaskKind : int32_t { kNone, kAllowed, kMasked };

struct PackedSamplingRow {
  uint64_t seed;
  uint32_t position;
  int32_t logit_row;
  SamplingNumbers numbers;  // The chance xtc_probability has been drawn: it is 1 or 0.
  float log_min_p;          // Threshold on a score relative to the best token; -inf keeps all.
  int32_t num_kept;         // Number of tokens that the masks leave.
  int32_t num_top;          // At most max_top and vocab_size.
  int32_t given_token;      // A row with a given token has no penalties, biases and masks.
  int32_t num_candidates;   // -1 means to draw. Otherwise it is at most num_kept and max_top.
  int32_t first_penalty, num_penalties;
  int32_t first_bias, num_biases;
  int32_t first_mask, num_masks;
  MaskKind mask_kind;
  int32_t drawn_place;  // The index into drawn_tokens; -1 means nowhere.
  // Index into drawn_tokens of a token that occurred once more than `penalties` say; -1 means none. The next three are
  // the penalties of a token that occurred once, in the output.
  int32_t pending_place;
  float pending_factor, pending_frequency, pending_presence;
};

struct SamplingKernelArgs {
  const float* logits;            // [rows of logits, vocab_size]
  const PackedSamplingRow* rows;  // [num_rows]
  // Arrays of all rows, one row after the other. All tokens are in the vocabulary.
  const TokenPenalty* penalties;  // Each token at most once in a row.
  const TokenBias* biases;        // Sorted by token within a row.
  const int32_t* masks;           // Tokens, each at most once in a row.
  SamplingResult* results;        // [num_rows]
  ScoredCandidate* top;           // [num_rows, max_top]
  // A copy of the drawn tokens by place; 0 for a row without an answer. Before, a pending token has been read from
  // there.
  int32_t* drawn_tokens;
  float* scratch;          // [blocks of the grid, scratch_stride]; null when no row changes its logits.
  int32_t scratch_stride;  // A multiple of 4.
  int32_t num_rows;
  int32_t vocab_size;
  int32_t max_top;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SAMPLING_ARGS_H_
