// SPDX-License-Identifier: Apache-2.0

#include "bench/serving_sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/conversations.h"

namespace quire {
namespace {

// Most of a step is the time to read the weights.
constexpr StepTime kHeavySteps = {.base_us = 20'000, .per_token_us = 50, .per_swapped_block_us = 10};

ServingSimOptions Options() {
  return {.scheduler = {.max_sequences = 32, .max_context_tokens = 4096}, .num_blocks = 4096, .step_time = kHeavySteps};
}

std::vector<RequestLengths> Chats(int count) {
  std::vector<RequestLengths> requests = DrawLogNormal(161, 100, count, /*seed=*/1);
  std::erase_if(requests, [](const RequestLengths& request) { return request.prompt + request.output > 4096; });
  return requests;
}

// The expected work is one step of 10 tokens, then two steps of one token each.
TEST(ServingSimTest, TimeIsThatOfTheSteps) {
  ServingSimOptions options = Options();
  options.step_time = {.base_us = 1000, .per_token_us = 100};
  const ServingReport report = SimulateServing({{0, 10, 3}}, options);
  EXPECT_DOUBLE_EQ(report.seconds, 0.0042);
  EXPECT_DOUBLE_EQ(report.first_token_s.Median(), 0.002);
  EXPECT_EQ(report.token_gaps_s.size(), 2);
  EXPECT_NEAR(report.token_gaps_s.Median(), 0.0011, 1e-12);
  EXPECT_EQ(report.output_tokens, 3);
}

TEST(ServingSimTest, AtRateKeepsTheProportionsOfGaps) {
  const std::vector<RequestLengths> requests = AtRate({{5, 1, 1}, {6, 1, 1}, {9, 1, 1}, {13, 1, 1}}, 0.5);
  EXPECT_EQ(requests[0].arrival_s, 0);
  EXPECT_EQ(requests[1].arrival_s, 1);
  EXPECT_EQ(requests[2].arrival_s, 4);
  EXPECT_EQ(requests[3].arrival_s, 8);
  EXPECT_EQ(AtRate(requests, 0)[3].arrival_s, 0);
}

TEST(ServingSimTest, ContinuousBatchingServesMoreThanStatic) {
  const std::vector<RequestLengths> requests = AtRate(Chats(200), 0);
  ServingSimOptions options = Options();
  const double continuous = SimulateServing(requests, options).output_tokens_per_s();
  options.scheduler.batching = Batching::kStatic;
  EXPECT_GT(continuous, 1.5 * SimulateServing(requests, options).output_tokens_per_s());
}

TEST(ServingSimTest, ChunksBoundTheGapsBetweenTokens) {
  const std::vector<RequestLengths> requests = AtRate(DrawLogNormal(1000, 50, 60, /*seed=*/1), 2);
  ServingSimOptions options = Options();
  options.scheduler.max_context_tokens = options.scheduler.max_tokens_per_step = 1 << 14;
  options.scheduler.max_chunk_tokens = 1 << 14;
  const double whole = SimulateServing(requests, options).token_gaps_s.Quantile(1);
  options.scheduler.max_chunk_tokens = 128;
  options.scheduler.max_tokens_per_step = 256;
  const double chunked = SimulateServing(requests, options).token_gaps_s.Quantile(1);
  EXPECT_LT(chunked, whole / 2);
  EXPECT_LE(chunked, kHeavySteps.Seconds({.tokens = 256}) + 1e-9);
}

// The pool has 30 % of the most blocks that the requests use in a large pool.
class SmallPoolTest : public ::testing::Test {
 protected:
  ServingReport Serve(bool swaps) const {
    ServingSimOptions options = Options();
    const int demand = SimulateServing(requests_, options).most_used_blocks;
    options.num_blocks = static_cast<int>(0.3 * demand);
    options.num_host_blocks = swaps ? demand : 0;
    options.scheduler.watermark = 0;
    return SimulateServing(requests_, options);
  }

  const std::vector<RequestLengths> requests_ = AtRate(Chats(300), 0);
};

TEST_F(SmallPoolTest, EveryRequestFinishesAndMostTokensAreComputedOnce) {
  const ServingReport report = Serve(/*swaps=*/false);
  EXPECT_EQ(report.num_finished, static_cast<int64_t>(requests_.size()));
  EXPECT_GT(report.counts.preemptions, 0);
  EXPECT_EQ(report.counts.swap_outs, 0);
  EXPECT_GT(report.recomputed_share(), 0);
  EXPECT_LT(report.recomputed_share(), 0.25);
}

TEST_F(SmallPoolTest, SwapComputesNothingAgain) {
  const ServingReport report = Serve(/*swaps=*/true);
  EXPECT_EQ(report.num_finished, static_cast<int64_t>(requests_.size()));
  EXPECT_GT(report.counts.swap_outs, 0);
  EXPECT_EQ(report.counts.swap_outs, report.counts.preemptions);
  EXPECT_EQ(report.counts.recomputed_tokens, 0);
}

TEST(StepTimeTest, FitFindsTheConstants) {
  const StepTime truth = {.base_us = 500, .per_token_us = 30, .per_context_token_us = 0.1};
  std::vector<TimedStep> steps;
  for (int i = 0; i < 100; ++i) {
    const StepWork work = {.tokens = 1.0 + i % 7, .context_tokens = 100.0 * (i % 11)};
    steps.push_back({work, truth.Seconds(work) * (i % 20 == 0 ? 3 : 1)});
  }
  const StepTime fitted = FitStepTime(steps);
  EXPECT_NEAR(fitted.base_us, truth.base_us, 1e-6);
  EXPECT_NEAR(fitted.per_token_us, truth.per_token_us, 1e-6);
  EXPECT_NEAR(fitted.per_context_token_us, truth.per_context_token_us, 1e-6);
}

}  // namespace
}  // namespace quire
