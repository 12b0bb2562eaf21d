// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_TASK_H_
#define QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_TASK_H_

#include <cstdint>

#include "kernels/half_float.h"
#include "kernels/softmax_state.h"

namespace quire::cpu {

// Attends rows of queries to consecutive 16-token units of one KV head and updates each row's running softmax. Tokens
// are processed in tiles of 64 absolute positions. Each row sees the tokens [visible_begin, visible_end). Its result
// does not depend on any other row.
struct AttentionTask {
  const void* const* units;     // [num_units + num_following], K of each in the layout of its type; V follows K, and
                                // scales follow V.
  const float* const* queries;  // [num_rows], each [head_dim]
  // For kernels that round queries to bfloat16: memory for [num_rows] of them, rounded up to a multiple of 16, each
  // [head_dim] rounded up to a multiple of 32. It is aligned to 64 bytes. A kernel fills it, unless an earlier task
  // with the same queries has done so.
  BFloat16* rounded_queries;
  bool queries_are_rounded;
  const int32_t* visible_begin;  // [num_rows] absolute positions
  const int32_t* visible_end;    // [num_rows]
  SoftmaxState* states;          // [num_rows], state of the tokens seen before; updated. May be empty states.
  float* values;                 // [num_rows, padded_dim], sum of exp(score - max) * v of the same tokens; updated.
  int num_units;
  int num_following;  // Number of further units that later tasks will probably read. They may be prefetched.
  int first_token;    // Position of the first token of units[0], a multiple of 64.
  int num_rows;
  int head_dim;
  int padded_dim;  // head_dim rounded up to a multiple of 16: columns of V in a unit. K is [head_dim][16] in padded_dim
                   // * 16 elements.
  float scale;
  float softcap;  // As in AttentionArgs.
};
constexpr int kAttentionTileTokens = 64;
constexpr int kAttentionTileUnits = kAttentionTileTokens / 16;
// Rows for which the kernels that multiply pairs read K and V only once. More rows are processed in several passes.
constexpr int kMaxAttentionRows = 128;

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ATTENTION_ATTENTION_TASK_H_
