// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/best_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/kernels/kernel_test_util.h"

namespace quire::cpu {
namespace {

std::vector<int32_t> Ids(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<int32_t> KeepSorted(const std::vector<float>& scores, double limit, const std::vector<double>& weights) {
  std::vector<int32_t> tokens = Ids(scores.size());
  std::stable_sort(tokens.begin(), tokens.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  double before = 0;
  size_t count = 0;
  while (count < tokens.size() && before < limit) before += weights[tokens[count++]];
  tokens.resize(count);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST(BestTokensTest, KeepsWhatAFullSortKeeps) {
  Random random(5);
  BestTokens best;
  for (int i = 0; i < 500; ++i) {
    const int count = random.Int(1, 300);
    std::vector<float> scores = random.Normals(count, i % 3 == 0 ? 1e-6f : 10.0f);
    if (i % 2 == 0) std::transform(scores.begin(), scores.end(), scores.begin(), [](float s) { return float(int(s)); });
    std::vector<double> weights(count);
    for (double& weight : weights) weight = random.Int(0, 8);  // Their sums are exact.
    weights[0] = 1;
    const double limit = random.Int(1, int(std::accumulate(weights.begin(), weights.end(), 0.0)));
    std::vector<int32_t> tokens = Ids(count);
    best.Keep(
        scores.data(), limit, [&](int32_t token) { return weights[token]; }, &tokens);
    std::sort(tokens.begin(), tokens.end());
    ASSERT_EQ(tokens, KeepSorted(scores, limit, weights)) << "case " << i;
  }
}

TEST(BestTokensTest, BothZerosAreEqual) {
  const std::vector<float> scores = {-0.0f, 0.0f, -0.0f, std::numeric_limits<float>::lowest()};
  std::vector<int32_t> tokens = Ids(4);
  BestTokens().Keep(
      scores.data(), 2, [](int32_t) { return 1.0; }, &tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{0, 1}));
}

// Logits that a high temperature has made nearly equal, of which half stay: a sort would look at each about 17 times.
TEST(BestTokensTest, LooksAtEachTokenAFewTimes) {
  Random random(6);
  const std::vector<float> scores = random.Normals(128'000, 1e-6f);
  std::vector<int32_t> tokens = Ids(scores.size());
  int num_looks = 0;
  const auto weight = [&](int32_t) {
    ++num_looks;
    return 1.0;
  };
  BestTokens().Keep(scores.data(), 64'000, weight, &tokens);
  EXPECT_EQ(tokens.size(), 64'000u);
  EXPECT_LE(num_looks, 3 * 128'000);
}

}  // namespace
}  // namespace quire::cpu
