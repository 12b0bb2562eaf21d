// SPDX-License-Identifier: Apache-2.0

// The kernels of mixtures of experts on a device, compared with their formulas.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/cuda/expert_product.h"
#include "kernels/reference/dense.h"
#include "kernels/reference/experts.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/kernel_test_util.h"
#include "tests/kernels/router_rules.h"

namespace quire::cuda {
namespace {

constexpr double kExpertTolerance = 5e-3;  // Results are rounded to 16 bits.
constexpr DataType kExpertElements[] = {DataType::kBFloat16, DataType::kFloat16};

using DeviceExpertsTest = DeviceTest;

const KernelTable& ExpertKernels(Device* device, DataType element) {
  return *device->FindKernels(element, 128, 16);
}

std::vector<uint16_t> EncodedBits(const std::vector<float>& values, DataType type) {
  const std::vector<char> bytes = Encoded(values, type);
  const auto* const bits = reinterpret_cast<const uint16_t*>(bytes.data());
  return {bits, bits + values.size()};
}

std::vector<float> DecodedBits(const std::vector<uint16_t>& bits, DataType type) {
  const char* const bytes = reinterpret_cast<const char*>(bits.data());
  return Decoded({bytes, bytes + bits.size() * sizeof(uint16_t)}, type);
}

struct Choices {
  std::vector<int32_t> experts;
  std::vector<float> weights, shared_weights;
};

Choices Route(Device* device, const RouterRule& rule, const std::vector<float>& logits, bool has_shared,
              const std::vector<float>& bias = {}) {
  const int num_logits = rule.num_experts + (has_shared ? 1 : 0), num_tokens = int(logits.size()) / num_logits;
  DeviceArray<float> logit_array(device, logits), bias_array(device, bias);
  DeviceArray<int32_t> experts(device, std::vector<int32_t>(size_t(num_tokens) * rule.top_k, -1));
  DeviceArray<float> weights(device, std::vector<float>(experts.size(), NAN));
  DeviceArray<float> shared(device, std::vector<float>(num_tokens, NAN));
  device->Launch(ExpertKernels(device, DataType::kBFloat16).route,
                 RouteKernelArgs{rule, logit_array.data(), bias.empty() ? nullptr : bias_array.data(), experts.data(),
                                 weights.data(), has_shared ? shared.data() : nullptr, num_tokens, num_logits},
                 2);
  return {experts.Download(), weights.Download(), shared.Download()};
}

TEST_F(DeviceExpertsTest, RoutesAreThoseOfTheFormula) {
  Random random(1);
  std::vector<RouterRule> rules = RouterRules();
  rules.push_back({.num_experts = kMostExperts, .top_k = 10, .num_groups = kMostExpertGroups, .top_groups = 4});
  for (const RouterRule& rule : rules) {
    for (const bool has_shared : {false, true}) {
      const int num_tokens = 37, num_logits = rule.num_experts + (has_shared ? 1 : 0);
      const std::vector<float> logits = random.Normals(size_t(num_tokens) * num_logits, 2.0f);
      const std::vector<float> bias = has_shared ? random.Normals(rule.num_experts, 0.3f) : std::vector<float>();
      const Choices actual = Route(device(), rule, logits, has_shared, bias);
      for (int token = 0; token < num_tokens; ++token) {
        const float* const row = &logits[size_t(token) * num_logits];
        const auto expected = reference::Route(rule, {row, row + rule.num_experts}, Doubles(bias));
        for (int k = 0; k < rule.top_k; ++k) {
          const size_t at = size_t(token) * rule.top_k + k;
          ASSERT_EQ(actual.experts[at], expected.experts[k]) << rule.num_experts << " experts, token " << token;
          ASSERT_NEAR(actual.weights[at], expected.weights[k], 1e-5 * expected.weights[k]);
        }
        if (!has_shared) continue;
        const double gate = 1 / (1 + std::exp(-double{row[rule.num_experts]}));
        ASSERT_NEAR(actual.shared_weights[token], gate, 1e-5 * gate);
      }
    }
  }
}

TEST_F(DeviceExpertsTest, EqualScoresGoToTheLowerExpert) {
  const std::vector<float> same(8, 0.25f), two = {0, 1, 3, 1, 1, 3, 1, 0}, many(100, 1);
  RouterRule rule = {.num_experts = 8, .top_k = 3};
  EXPECT_EQ(Route(device(), rule, same, false).experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Route(device(), rule, two, false).experts, (std::vector<int32_t>{1, 2, 5}));
  rule.num_groups = 4;
  rule.top_groups = 2;
  EXPECT_EQ(Route(device(), rule, same, false).experts, (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Route(device(), rule, two, false).experts, (std::vector<int32_t>{2, 3, 5}));
  EXPECT_EQ(Route(device(), {.num_experts = 100, .top_k = 3}, many, false).experts, (std::vector<int32_t>{0, 1, 2}));
}

// A broken input must not make the choice leave its arrays.
TEST_F(DeviceExpertsTest, LogitsThatAreNoNumbersGiveSomeChoice) {
  for (const RouterRule& rule : RouterRules()) {
    for (const float logit : {NAN, INFINITY, -INFINITY}) {
      const Choices choices = Route(device(), rule, std::vector<float>(rule.num_experts, logit), false);
      for (int k = 0; k < rule.top_k; ++k) {
        EXPECT_GE(choices.experts[k], k == 0 ? 0 : choices.experts[k - 1] + 1) << k;
        EXPECT_LT(choices.experts[k], rule.num_experts);
      }
    }
  }
}

// Tokens and their experts, and how the products take them.
struct Plan {
  int num_experts, top_k;
  std::vector<int32_t> experts;  // [num_tokens, top_k]
  std::vector<int32_t> order, items;
  int num_items;
};

// Every token uses expert 0, none uses expert 1, and the rest is random.
Plan MakePlan(Device* device, int num_tokens, int num_experts, int top_k, Random* random) {
  Plan plan = {num_experts, top_k, {}, {}, {}, 0};
  for (int token = 0; token < num_tokens; ++token) {
    std::vector<int32_t> others(num_experts - 2);
    std::iota(others.begin(), others.end(), 2);
    random->Shuffle(&others);
    others.resize(top_k - 1);
    std::sort(others.begin(), others.end());
    plan.experts.push_back(0);
    plan.experts.insert(plan.experts.end(), others.begin(), others.end());
  }
  const int num_pairs = num_tokens * top_k, most = MostExpertItems(num_pairs, num_experts);
  DeviceArray<int32_t> experts(device, plan.experts), order(device, num_pairs), num_items(device, 1);
  DeviceArray<int32_t> items(device, size_t(most) * 3);
  device->Launch(ExpertKernels(device, DataType::kBFloat16).expert_plan,
                 ExpertPlanArgs{experts.data(), order.data(), reinterpret_cast<ExpertItem*>(items.data()),
                                num_items.data(), num_pairs, num_experts},
                 1);
  plan.order = order.Download();
  plan.num_items = num_items.Download()[0];
  EXPECT_LE(plan.num_items, most);
  plan.items = items.Download();
  return plan;
}

TEST_F(DeviceExpertsTest, PairsAreOrderedByExpertAndToken) {
  Random random(3);
  for (const auto& [num_tokens, num_experts, top_k] : {std::tuple(1, 3, 2), {5, 8, 3}, {200, 40, 4}, {2100, 512, 2}}) {
    SCOPED_TRACE(num_tokens);
    const Plan plan = MakePlan(device(), num_tokens, num_experts, top_k, &random);
    std::vector<int32_t> expected(plan.experts.size());
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return plan.experts[a] < plan.experts[b]; });
    EXPECT_EQ(plan.order, expected);
    int next = 0;
    for (int i = 0; i < plan.num_items; ++i) {
      const int expert = plan.items[3 * i], first = plan.items[3 * i + 1], count = plan.items[3 * i + 2];
      EXPECT_EQ(first, next);
      EXPECT_TRUE(count >= 1 && count <= kItemPairs);
      for (int p = first; p < first + count; ++p) ASSERT_EQ(plan.experts[plan.order[p]], expert);
      next = first + count;
    }
    EXPECT_EQ(next, int(plan.experts.size()));
  }
}

// One expert has more pairs than an item, one has none, and the others have a few.
TEST_F(DeviceExpertsTest, ProductsByExpertsAgreeWithFloat64) {
  for (const DataType element : kExpertElements) {
    for (const auto& [rows, cols] : {std::pair(24, 8), {136, 200}}) {
      SCOPED_TRACE(testing::Message() << Name(element) << ", " << rows << " rows and " << cols << " columns");
      Random random(rows);
      const int num_tokens = 70, num_experts = 5, top_k = 3, num_pairs = num_tokens * top_k;
      const Plan plan = MakePlan(device(), num_tokens, num_experts, top_k, &random);
      std::vector<std::vector<double>> matrices;
      std::vector<std::unique_ptr<DeviceArray<uint16_t>>> arrays;
      std::vector<const uint16_t*> pointers;
      for (int i = 0; i < num_experts; ++i) {
        const std::vector<uint16_t> bits = EncodedBits(random.Normals(size_t(rows) * cols), element);
        matrices.push_back(Doubles(DecodedBits(bits, element)));
        arrays.push_back(std::make_unique<DeviceArray<uint16_t>>(device(), bits));
        pointers.push_back(arrays.back()->data());
      }
      DeviceArray<const uint16_t*> w(device(), pointers);
      DeviceArray<int32_t> order(device(), plan.order), items(device(), plan.items);
      DeviceArray<int32_t> num_items(device(), std::vector<int32_t>{plan.num_items});
      for (const bool gathers : {true, false}) {
        const int x_rows = gathers ? num_tokens : num_pairs;
        const std::vector<uint16_t> x_bits = EncodedBits(random.Normals(size_t(x_rows) * cols), element);
        const std::vector<double> x_values = Doubles(DecodedBits(x_bits, element));
        DeviceArray<uint16_t> x(device(), x_bits), y(device(), size_t(num_pairs) * rows);
        device()->Launch(ExpertKernels(device(), element).expert_product,
                         ExpertProductArgs{x.data(), w.data(), y.data(), order.data(),
                                           reinterpret_cast<const ExpertItem*>(items.data()), num_items.data(), rows,
                                           cols, top_k, gathers},
                         3);
        std::vector<double> expected(y.size());
        for (int p = 0; p < num_pairs; ++p) {
          const int pair = plan.order[p], from = gathers ? pair / top_k : p, to = gathers ? p : pair;
          const std::vector<double> row(x_values.begin() + from * cols, x_values.begin() + (from + 1) * cols);
          const std::vector<double> product = reference::Linear(row, matrices[plan.experts[pair]], cols);
          std::copy(product.begin(), product.end(), expected.begin() + to * rows);
        }
        EXPECT_LT(RelativeError(DecodedBits(y.Download(), element), expected), kExpertTolerance) << gathers;
      }
    }
  }
}

TEST_F(DeviceExpertsTest, OutputsAreAddedInTheOrderOfTheExperts) {
  constexpr int kTokens = 9, kExperts = 20, kTopK = 6, kDim = 72;
  for (const DataType element : kExpertElements) {
    for (const bool has_more : {false, true}) {
      Random random(7);
      const Plan plan = MakePlan(device(), kTokens, kExperts, kTopK, &random);
      const std::vector<uint16_t> output_bits = EncodedBits(random.Normals(kTokens * kTopK * kDim), element);
      const std::vector<uint16_t> shared_bits = EncodedBits(random.Normals(kTokens * kDim), element);
      const std::vector<uint16_t> residual_bits = EncodedBits(random.Normals(kTokens * kDim), element);
      const std::vector<float> weights = random.Normals(kTokens * kTopK), shared_weights = random.Normals(kTokens);
      const std::vector<float> outputs = DecodedBits(output_bits, element), shared = DecodedBits(shared_bits, element);
      const std::vector<float> residual = DecodedBits(residual_bits, element);
      std::vector<float> expected;
      for (int token = 0; token < kTokens; ++token) {
        std::vector<std::vector<float>> rows;
        for (int k = 0; k < kTopK; ++k) {
          const auto row = outputs.begin() + (token * kTopK + k) * kDim;
          rows.emplace_back(row, row + kDim);
        }
        const auto first = plan.experts.begin() + token * kTopK;
        std::vector<float> sum =
            reference::SumExperts({first, first + kTopK}, kExperts,
                                  {weights.begin() + token * kTopK, weights.begin() + (token + 1) * kTopK}, rows, {},
                                  /*is_fused=*/true);
        for (int d = 0; d < kDim && has_more; ++d) {
          sum[d] = std::fma(shared_weights[token], shared[token * kDim + d], sum[d]) + residual[token * kDim + d];
        }
        expected.insert(expected.end(), sum.begin(), sum.end());
      }
      DeviceArray<uint16_t> output_array(device(), output_bits), shared_array(device(), shared_bits);
      DeviceArray<uint16_t> y(device(), residual_bits);
      DeviceArray<int32_t> experts(device(), plan.experts);
      DeviceArray<float> weight_array(device(), weights), shared_weight_array(device(), shared_weights);
      device()->Launch(
          ExpertKernels(device(), element).expert_sum,
          ExpertSumArgs{output_array.data(), experts.data(), weight_array.data(),
                        has_more ? shared_array.data() : nullptr, has_more ? shared_weight_array.data() : nullptr,
                        has_more ? y.data() : nullptr, y.data(), kTokens, kDim, kExperts, kTopK},
          2);
      EXPECT_EQ(y.Download(), EncodedBits(expected, element)) << Name(element) << has_more;
    }
  }
}

}  // namespace
}  // namespace quire::cuda
