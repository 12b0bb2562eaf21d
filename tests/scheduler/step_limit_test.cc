// SPDX-License-Identifier: Apache-2.0

#include "scheduler/step_limit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace quire {
namespace {

constexpr StepLimit kLimit = {
    .fixed_us = 30'000, .us_per_token = 1000, .max_step_us = 300'000, .max_prompt_step_us = 500'000};

// The demand when no token of the prompts has been computed.
StepDemand Demand(int num_decodes, int num_prompts, int64_t num_tokens) {
  return {num_decodes, num_prompts, num_tokens, num_tokens};
}

// What the callers lose when each step has m tokens of prompts, as the header of StepLimit defines it.
double Loss(const StepLimit& limit, const StepDemand& demand, double m) {
  const double step_us = limit.fixed_us + limit.us_per_token * demand.num_decodes;
  const double total_us = (step_us + limit.us_per_token * m) * static_cast<double>(demand.prompt_tokens) / m;
  return demand.num_decodes * total_us * limit.us_per_token * m / 2 +
         StepLimit::kFirstTokenWeight * (demand.num_prompts + 1) * total_us * total_us / 2;
}

TEST(StepLimitTest, WithoutTimesThereIsNoLimit) {
  EXPECT_GT(StepLimit().MaxTokens(Demand(10, 1, 400)), 1 << 24);
}

TEST(StepLimitTest, TheExampleOfTheHeader) {
  EXPECT_EQ(kLimit.MaxTokens(Demand(10, 1, 400)), 110);
}

TEST(StepLimitTest, WithoutDecodesTheLongerTimeAloneCounts) {
  EXPECT_EQ(kLimit.MaxTokens(Demand(0, 1, 400)), 470);
  EXPECT_EQ(kLimit.MaxTokens(Demand(0, 1, 32'000)), 470);
  EXPECT_EQ(kLimit.MaxTokens(Demand(0, 40, 32'000)), 470);
}

TEST(StepLimitTest, BesideDecodesNoStepTakesLongerThanItsTime) {
  for (const int num_decodes : {1, 10, 100, 200}) {
    EXPECT_LE(kLimit.MaxTokens(Demand(num_decodes, 100, 1'000'000)), 270) << num_decodes;
    EXPECT_GE(kLimit.MaxTokens(Demand(num_decodes, 100, 1'000'000)), 269) << num_decodes;
  }
}

TEST(StepLimitTest, PromptsAlwaysGetAFewTokens) {
  EXPECT_EQ(kLimit.MaxTokens(Demand(1000, 1, 4000)), 1032) << "1000 decodes take longer than a step may";
  StepLimit slow = kLimit;
  slow.fixed_us = 2'000'000;
  EXPECT_EQ(slow.MaxTokens(Demand(1, 1, 4000)), 33);
  EXPECT_EQ(slow.MaxTokens(Demand(0, 1, 4000)), 32);
}

// The tokens per step that the callers lose least by are searched one by one.
TEST(StepLimitTest, TheChunkIsTheOneThatCallersLoseLeastBy) {
  StepLimit limit = kLimit;
  limit.max_step_us = std::numeric_limits<double>::infinity();
  for (const double us_per_token : {20.0, 300.0, 2000.0}) {
    limit.us_per_token = us_per_token;
    for (const int num_decodes : {1, 7, 60, 500}) {
      for (const int num_prompts : {1, 5, 40}) {
        const StepDemand demand = Demand(num_decodes, num_prompts, int64_t{5000} * num_prompts);
        int best = StepLimit::kMinPromptTokens;
        for (int m = best; Loss(limit, demand, m + 1) < Loss(limit, demand, m); ++m) best = m + 1;
        // Enough tokens are left that dividing them equally changes little.
        StepDemand many_steps = demand;
        many_steps.uncomputed_tokens = int64_t{1000} * best;
        EXPECT_NEAR(limit.MaxTokens(many_steps) - num_decodes, best, 1 + best / 500)
            << us_per_token << " us, " << num_decodes << " decodes, " << num_prompts << " prompts";
      }
    }
  }
}

TEST(StepLimitTest, MoreDecodesMakeChunksSmallerAndMorePromptsMakeThemLarger) {
  StepLimit limit = kLimit;
  limit.fixed_us = 0;  // So the chunk does not grow because the decodes take time.
  limit.max_step_us = std::numeric_limits<double>::infinity();
  const auto chunk = [&](int num_decodes, int num_prompts) {
    return limit.MaxTokens({num_decodes, num_prompts, 1'000'000, 1000}) - num_decodes;
  };
  EXPECT_GT(kLimit.MaxTokens({2, 1, 1'000'000, 400}) - 2, kLimit.MaxTokens({20, 1, 1'000'000, 400}) - 20);
  EXPECT_LT(chunk(10, 1), chunk(10, 3));
}

TEST(StepLimitTest, ThePromptIsDividedEquallyAmongItsSteps) {
  StepLimit limit = kLimit;
  limit.max_step_us = 30'000 + 10'000 + 150'000;  // 150 tokens beside 10 decodes.
  const auto chunk = [&](int64_t uncomputed) { return limit.MaxTokens({10, 20, uncomputed, 100'000}) - 10; };
  EXPECT_EQ(chunk(140), 140);
  EXPECT_EQ(chunk(150), 150);
  EXPECT_EQ(chunk(151), 76) << "two steps";
  EXPECT_EQ(chunk(310), 104) << "three steps";
}

// What has been computed of a prompt still counts, so its last chunks are not smaller than its first ones.
TEST(StepLimitTest, ChunksDoNotShrinkTowardsTheEndOfAPrompt) {
  int64_t left = 400;
  int num_steps = 0;
  for (; left > 0; ++num_steps) left -= kLimit.MaxTokens({10, 1, left, 400}) - 10;
  EXPECT_EQ(left, 0);
  EXPECT_EQ(num_steps, 4);
}

}  // namespace
}  // namespace quire
