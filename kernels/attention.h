#ifndef QUIRE_KERNELS_ATTENTION_H_
#define QUIRE_KERNELS_ATTENTION_H_

#include "kernels/batch.h"
#include "kernels/kv_layout.h"

namespace quire {

// Causal attention of each sequence's queries over its blocks: decode and (chunked) prefill are the same call.
// out[t, h] = softmax(q k^T * scale) v over cached positions in (p - window, p], p the query's position.
// Reads no slot that a query cannot see, so what lies in unwritten or later slots never matters.
struct AttentionArgs {
  const BatchView* batch;
  const void* q;  // [num_tokens, q_stride], the first num_heads * head_dim of a row.
  int q_stride;   // Elements from one token's queries to the next.
  void* out;      // [num_tokens, num_heads * head_dim] in out_type.
  int num_heads;  // A multiple of layout->num_kv_heads; query head h reads KV head h * num_kv_heads / num_heads.
  float scale;    // 1 / sqrt(head_dim) as a rule.
  int window;     // Sliding window in tokens; 0: none.
  const KvLayout* layout;
  const void* kv_pool;                     // This layer's pool.
  DataType out_type = DataType::kFloat32;  // Or the input type of a matrix.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ATTENTION_H_
