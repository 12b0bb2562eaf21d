// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_ROPE_H_
#define QUIRE_KERNELS_ROPE_H_

#include "kernels/batch.h"
#include "kernels/kv_layout.h"

namespace quire {

// For each head of Q and K: an optional RMS norm over head_dim (Qwen3), then the rotation by position (half-split,
// "rotate_half"), or first the rotation and then the norm. K and V then go to their slots of the pool. qkv is
// [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], and Q is rotated in place. The angle is float(position) *
// inv_freq, rounded to float32 as in the models' training code.
struct RopeAppendArgs {
  const BatchView* batch;
  void* qkv;
  int num_heads;
  const float* q_norm;  // [head_dim] or null.
  const float* k_norm;  // [head_dim] or null.
  float norm_epsilon;
  const float* inv_freq;  // [rotary_dim / 2], with scaling already applied.
  // Number of leading dimensions of each head that rotate; even, usually head_dim. REQUIRES:
  // Has(OptionalPart::kPartialRotation), unless it is head_dim.
  int rotary_dim;
  float attention_scaling;  // Factor on cos and sin; 1 except for some scaled rotary embeddings.
  // Whether the norms come after the rotation. REQUIRES: Has(OptionalPart::kRotatedNorms), unless it is false.
  bool norms_after_rotation = false;
  // Above 0: Q of position p is multiplied by 1 + query_growth * ln(1 + floor(p / query_span)) in the end. REQUIRES:
  // Has(OptionalPart::kGrowingQueries), unless it is 0; query_span is at least 1.
  float query_growth = 0;
  int query_span = 0;  // Number of positions.
  const KvLayout* layout;
  void* kv_pool;  // The pool of this layer.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ROPE_H_
