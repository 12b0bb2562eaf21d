// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_REFERENCE_EXPERTS_H_
#define QUIRE_KERNELS_REFERENCE_EXPERTS_H_

#include <vector>

#include "kernels/experts.h"

// Naive versions of the operations of a mixture of experts. Tests compare the backends with them.
namespace quire::reference {

// The choice of one token.
struct Routing {
  std::vector<int> experts;     // Ascending.
  std::vector<double> weights;  // Of each.
};

// `logits` and `bias` are [num_experts]; the bias may be empty.
Routing Route(const RouterRule& rule, const std::vector<double>& logits, const std::vector<double>& bias);

// Adds the outputs of the experts of one token in the order of kernels/experts.h. `outputs` has a row for each expert,
// and `residual` is a row or empty. Products are added with one rounding (fused) or with two.
std::vector<float> SumExperts(const std::vector<int>& experts, int num_experts, const std::vector<float>& weights,
                              const std::vector<std::vector<float>>& outputs, const std::vector<float>& residual,
                              bool is_fused);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_EXPERTS_H_
