// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_ROPE_H_
#define QUIRE_KERNELS_ROPE_H_

#include "kernels/batch.h"
#include "kernels/kv_layout.h"

namespace quire {

// For each head of Q and K: an optional RMS norm over head_dim (Qwen3), then the rotation by position (half-split,
// "rotate_half"). K and V then go to their slots of the pool. qkv is [num_tokens, (num_heads + 2 * num_kv_heads) *
// head_dim], and Q is rotated in place. The angle is float(position) * inv_freq, rounded to float32 as in the models'
// training code.
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
  const KvLayout* layout;
  void* kv_pool;  // The pool of this layer.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ROPE_H_
