// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_EXPERTS_H_
#define QUIRE_KERNELS_EXPERTS_H_

#include <cstdint>

#include "kernels/linear.h"

namespace quire {

// A mixture of experts is many MLPs of one shape, the experts, of which each token uses a few (Shazeer et al.,
// "Outrageously Large Neural Networks", 2017). A router gives every expert a score for the token, chooses the experts
// of the best scores, and makes their weights of the scores.

// How a router makes scores of its logits: softmax over all experts, or 1 / (1 + exp(-logit)) of each.
enum class RouterScore : uint8_t { kSoftmax, kSigmoid };

// How a router chooses experts and weighs them.
struct RouterRule {
  int num_experts = 0;
  int top_k = 0;  // Experts of a token, at most num_experts.
  RouterScore score = RouterScore::kSoftmax;
  // The experts are divided into groups of consecutive ids, and a token uses experts of the best top_groups groups. The
  // score of a group is the sum of its best two. With more than one group, each has at least two experts, and
  // top_groups of them have at least top_k.
  int num_groups = 1;
  int top_groups = 1;
  // Whether the scores of the chosen experts are divided by their sum, and what is added to this sum.
  bool normalizes = false;
  float added_to_sum = 0;
  float least_sum = 0;  // A smaller sum counts as this.
  float scale = 1;      // Multiplies the weights.
};

// Chooses the experts of each token. Experts of equal scores are chosen by rising id, and groups, too. A token's choice
// does not depend on the other tokens.
struct RouteArgs {
  RouterRule rule;
  // [num_tokens, num_logits] float32. A logit behind those of the experts is that of the shared expert's gate.
  const float* logits;
  int num_logits;            // rule.num_experts, or one more.
  const float* choice_bias;  // [num_experts], added to the scores for the choice and not for the weights; or null.
  int num_tokens;
  int32_t* experts;       // [num_tokens, top_k]: the chosen experts of a token by rising id.
  float* weights;         // [num_tokens, top_k]
  float* shared_weights;  // [num_tokens]: 1 / (1 + exp(-logit)) of the last logit. Null without one.
};

// The two matrices of an expert, which PackGated and Pack (or PackQuantized) have made, and their biases. All experts
// of a layer have biases, or none. REQUIRES: Has(OptionalPart::kClampedSwiglu) for biases.
struct Expert {
  const PackedMatrix* gate_up = nullptr;  // Gate and up, [width, dim] each.
  const PackedMatrix* down = nullptr;     // [dim, width]
  const float* gate_up_bias = nullptr;    // [2 * width], of the gate and then of up; or null.
  const float* down_bias = nullptr;       // [dim], added to the output before its weight multiplies it; or null.
};

// The weights of experts are added in an order that does not depend on the batch. The experts are divided into
// kExpertRanges ranges of consecutive ids. Within a range, sum = fma(weight, output, sum) from zero by rising id. Then
// the ranges are added as the balanced binary tree of kernels/linear.h, and after that the shared expert and the
// residual. So 2, 4 or 8 devices that have whole ranges can add their parts to the same bits. CPUs without fused
// multiply-add round twice.
constexpr int kExpertRanges = 8;
constexpr int ExpertRange(int expert, int num_experts) {
  return int(int64_t{expert} * kExpertRanges / num_experts);
}

// y = residual + sum over the experts of a token of weight * MLP(x) (+ shared_weight * shared).
struct ExpertMlpArgs {
  const float* x;   // [num_tokens, dim] activations, of which the input of the experts is rounded.
  const Expert* w;  // [num_experts]; all have the same shapes and formats. Null where experts are left out.
  int num_experts;
  // The experts whose outputs are added; the others belong to other ranks. They are whole ranges.
  int first_expert = 0;
  int end_expert = 0;  // 0: num_experts.
  int top_k;
  const int32_t* experts;       // [num_tokens, top_k] as Route writes them.
  const float* weights;         // [num_tokens, top_k]
  const void* shared;           // [num_tokens, dim] activations: the output of an MLP that all tokens use; or null.
  const float* shared_weights;  // [num_tokens], or null for 1.
  const void* residual;         // [num_tokens, dim] activations, or null.
  void* y;                      // [num_tokens, dim] activations; may be the residual or `shared`.
  int num_tokens;
  Activation activation = Activation::kSilu;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_EXPERTS_H_
