// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_ATTENTION_H_
#define QUIRE_KERNELS_ATTENTION_H_

#include "kernels/batch.h"
#include "kernels/kv_layout.h"
#include "kernels/types.h"

namespace quire {

// Multiple of tokens at which kernels begin to read a context with a window.
constexpr int kWindowAlignment = 256;

// Causal attention of each sequence's queries over its blocks. Decode and (chunked) prefill are the same call.
// out[t, h] = softmax(cap(q k^T * scale)) v over the cached positions in (p - window, p], where p is the query's
// position and cap(a) is softcap * tanh(a / softcap), or a without a softcap. With sinks, the denominator of the
// softmax has one more term, exp(sinks[h]), which belongs to no token (Xiao et al., "Efficient Streaming Language
// Models with Attention Sinks", 2023). It is added last, so that the bits do not depend on how the tokens are divided.
// The operation reads no slot behind those that a query sees, so the contents of unwritten slots do not matter. Before
// a window it may read slots from a multiple of kWindowAlignment on. They have no effect, unless they hold infinities
// or NaNs. It does not look at entries of block tables before them.
struct AttentionArgs {
  const BatchView* batch;
  const void* q;  // [num_tokens, q_stride]; the queries are the first num_heads * head_dim elements of a row.
  int q_stride;   // Distance in elements from one token's queries to the next token's.
  void* out;      // [num_tokens, num_heads * head_dim] in out_type.
  int num_heads;  // A multiple of layout->num_kv_heads; query head h reads KV head h * num_kv_heads / num_heads.
  float scale;    // Usually 1 / sqrt(head_dim). Positive.
  int window;     // Sliding window in tokens; 0 means none.
  const KvLayout* layout;
  const void* kv_pool;                     // The pool of this layer.
  DataType out_type = DataType::kFloat32;  // Either float32 or the input type of a matrix.
  InputLayout out_layout = InputLayout::kRows;
  float softcap = 0;             // At least 0; 0 means none. REQUIRES: Has(OptionalPart::kSoftcap), unless it is 0.
  const float* sinks = nullptr;  // [num_heads] finite, or null. REQUIRES: Has(OptionalPart::kSinks), unless it is null.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ATTENTION_H_
