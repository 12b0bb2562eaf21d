// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ARGS_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_ARGS_H_

#include <cmath>
#include <cstdint>

#include "kernels/attention_plan.h"
#include "kernels/softmax_state.h"

namespace quire::cuda {

// Tokens per split in plans for these kernels. A tile of the plan is a whole split, so shared tokens are computed in
// whole splits, and no item continues a split that another item has begun.
constexpr int kSplitTokens = 256;

// The arrays that the attention kernels of a step read and write, all in device memory. `item.resumed` is never used.
struct AttentionArgs {
  const uint16_t* q;  // [num_tokens, q_stride], type of K and V; the first num_heads * head_dim of a row.
  int32_t q_stride;   // In elements; a multiple of 2.
  uint16_t* out;      // [num_tokens, num_heads * head_dim]
  const char* kv_pool;
  const int32_t* positions;      // [num_tokens]
  const int32_t* table_starts;   // [num_sequences + 1]
  const uint32_t* block_tables;  // Block tables of all sequences.

  // The plan.
  const int32_t* tokens;
  const AttentionItem* items;
  const AttentionMerge* merges;
  const PartialPlace* places;
  // [2]: this launch runs the items, or merges, [range[0], range[1]). The range is in memory, like the plan, so that a
  // recorded launch can be repeated with another plan.
  const int32_t* range;
  SoftmaxState* partial_states;  // [num_partials]; max is in powers of two.
  float* partial_values;         // [num_partials, head_dim]; not divided by the sum.

  int32_t num_kv_heads;
  int32_t group_size;  // Query heads per KV head.
  int32_t block_size;
  int32_t window;    // 0 means none.
  float scale_log2;  // Scores are multiplied by scale / ln(2), which is positive.
  // With a softcap, a sum s of products q * k becomes cap * tanh(s / cap) before that, where cap is softcap / scale.
  float cap;        // 0 means none.
  float cap_slope;  // 2 / (cap * ln(2))
};

inline void SetSoftcap(double scale, double softcap, AttentionArgs* args) {
  args->cap = float(softcap / scale);
  args->cap_slope = float(2 * scale / softcap / std::log(2.0));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_ARGS_H_
