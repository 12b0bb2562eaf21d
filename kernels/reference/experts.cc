// SPDX-License-Identifier: Apache-2.0

#include "kernels/reference/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/reference/dense.h"

namespace quire::reference {
namespace {

// Returns the indices of the `count` largest scores, equal ones by index.
std::vector<int> Best(const std::vector<double>& scores, int count) {
  std::vector<int> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return scores[a] > scores[b]; });
  order.resize(count);
  return order;
}

}  // namespace

Routing Route(const RouterRule& rule, const std::vector<double>& logits, const std::vector<double>& bias) {
  std::vector<double> scores;
  double total = 0;
  for (const double logit : logits) total += std::exp(logit);
  for (const double logit : logits) {
    scores.push_back(rule.score == RouterScore::kSoftmax ? std::exp(logit) / total : 1 / (1 + std::exp(-logit)));
  }
  std::vector<double> choices = scores;
  for (size_t i = 0; i < bias.size(); ++i) choices[i] += bias[i];
  const int size = rule.num_experts / rule.num_groups;
  std::vector<double> groups;
  for (int group = 0; group < rule.num_groups; ++group) {
    std::vector<double> own(choices.begin() + group * size, choices.begin() + (group + 1) * size);
    std::sort(own.rbegin(), own.rend());
    groups.push_back(own[0] + (own.size() > 1 ? own[1] : 0));
  }
  const std::vector<int> open = Best(groups, rule.top_groups);
  for (int i = 0; i < rule.num_experts; ++i) {
    if (std::find(open.begin(), open.end(), i / size) == open.end()) choices[i] = -INFINITY;
  }
  Routing routing{.experts = Best(choices, rule.top_k), .weights = {}};
  std::sort(routing.experts.begin(), routing.experts.end());
  double sum = 0;
  for (const int expert : routing.experts) sum += scores[expert];
  const double divisor = std::max(sum + double{rule.added_to_sum}, double{rule.least_sum});
  for (const int expert : routing.experts) {
    routing.weights.push_back(scores[expert] / (rule.normalizes ? divisor : 1) * double{rule.scale});
  }
  return routing;
}

std::vector<float> SumExperts(const std::vector<int>& experts, int num_experts, const std::vector<float>& weights,
                              const std::vector<std::vector<float>>& outputs, const std::vector<float>& residual,
                              bool is_fused) {
  std::vector<float> y;
  for (size_t i = 0; i < outputs[0].size(); ++i) {
    float sums[kExpertRanges] = {};
    for (size_t k = 0; k < experts.size(); ++k) {
      float* const sum = &sums[ExpertRange(experts[k], num_experts)];
      *sum = is_fused ? std::fma(weights[k], outputs[k][i], *sum) : *sum + weights[k] * outputs[k][i];
    }
    y.push_back(AddSlices(sums, kExpertRanges) + (residual.empty() ? 0 : residual[i]));
  }
  return y;
}

}  // namespace quire::reference
