// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_ROUTER_RULES_H_
#define QUIRE_TESTS_KERNELS_ROUTER_RULES_H_

#include <vector>

#include "kernels/experts.h"

namespace quire {

// Rules with all ways to choose and to weigh experts.
inline std::vector<RouterRule> RouterRules() {
  return {
      {.num_experts = 8, .top_k = 2},
      {.num_experts = 128, .top_k = 8, .normalizes = true},
      {.num_experts = 60, .top_k = 4, .normalizes = true, .least_sum = 0.25f},
      {.num_experts = 5, .top_k = 5, .score = RouterScore::kSigmoid},
      {.num_experts = 33, .top_k = 3, .score = RouterScore::kSigmoid, .normalizes = true, .added_to_sum = 0.5f},
      {.num_experts = 64,
       .top_k = 6,
       .score = RouterScore::kSigmoid,
       .num_groups = 8,
       .top_groups = 3,
       .normalizes = true,
       .added_to_sum = 1e-20f,
       .scale = 2.5f},
      {.num_experts = 6, .top_k = 1, .num_groups = 3, .top_groups = 1, .scale = 0.5f},
  };
}

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_ROUTER_RULES_H_
