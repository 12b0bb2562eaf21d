// SPDX-License-Identifier: Apache-2.0

#include "scheduler/step_budget.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace quire {
namespace {

// A machine whose steps take `fixed_us`, plus `us_per_token` for each token, with relative noise of up to `noise`.
struct Machine {
  double fixed_us;
  double us_per_token;
  double noise = 0;
  std::mt19937 random{1};

  int64_t Run(int num_tokens) {
    const double factor = std::uniform_real_distribution<double>(1 - noise, 1 + noise)(random);
    return static_cast<int64_t>((fixed_us + us_per_token * num_tokens) * factor);
  }
};

// The tokens that a step beside `num_decodes` decodes has time for.
int TokensInTime(const StepBudget& budget, int num_decodes) {
  return budget.limit().MaxTokens({.num_decodes = num_decodes});
}

// Runs a long prompt beside `num_decodes` decodes, where every step uses its whole budget. Returns the tokens of the
// last step.
int RunPrompt(Machine* machine, int num_decodes, int num_steps, StepBudget* budget) {
  int num_tokens = 0;
  for (int i = 0; i < num_steps; ++i) {
    num_tokens = TokensInTime(*budget, num_decodes);
    budget->Record(num_tokens, machine->Run(num_tokens));
  }
  return num_tokens;
}

void RunDecodes(Machine* machine, int num_decodes, int num_steps, StepBudget* budget) {
  for (int i = 0; i < num_steps; ++i) budget->Record(num_decodes, machine->Run(num_decodes));
}

TEST(StepBudgetTest, FindsTheTokensThatFitTheTime) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200};
  StepBudget budget(100'000);
  RunDecodes(&machine, 16, 50, &budget);
  EXPECT_NEAR(RunPrompt(&machine, 16, 10, &budget), 400, 8);
}

TEST(StepBudgetTest, KnowsTheTokensPriceAfterManyDecodes) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200};
  StepBudget budget(100'000);
  RunPrompt(&machine, 1, 10, &budget);
  RunDecodes(&machine, 1, 1000, &budget);
  EXPECT_NEAR(TokensInTime(budget, 1), 400, 8);
}

TEST(StepBudgetTest, ToleratesNoise) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200, .noise = 0.2};
  StepBudget budget(100'000);
  for (int round = 0; round < 100; ++round) {
    RunDecodes(&machine, 16, 20, &budget);
    EXPECT_NEAR(RunPrompt(&machine, 16, 10, &budget), 400, 200) << round;
  }
}

TEST(StepBudgetTest, FollowsAMachineThatSlowsDown) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200};
  StepBudget budget(100'000);
  RunPrompt(&machine, 16, 20, &budget);
  machine = {.fixed_us = 40'000, .us_per_token = 400};
  RunDecodes(&machine, 16, 100, &budget);
  EXPECT_NEAR(RunPrompt(&machine, 16, 30, &budget), 150, 30);
}

TEST(StepBudgetTest, BeforeTheFirstStepItAllows256Tokens) {
  const StepBudget budget(100'000);
  EXPECT_EQ(TokensInTime(budget, 16), 256);
  EXPECT_EQ(TokensInTime(budget, 0), 256);
}

TEST(StepBudgetTest, AStepWithoutDecodesMayTakeHalfASecond) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200};
  StepBudget budget(100'000);
  RunDecodes(&machine, 16, 1, &budget);
  RunPrompt(&machine, 16, 20, &budget);
  EXPECT_NEAR(TokensInTime(budget, 0), 2400, 50);
}

TEST(StepBudgetTest, AStepWithoutDecodesMayTakeAtLeastTheTarget) {
  Machine machine{.fixed_us = 20'000, .us_per_token = 200};
  StepBudget budget(800'000);
  RunDecodes(&machine, 16, 1, &budget);
  RunPrompt(&machine, 16, 20, &budget);
  EXPECT_NEAR(TokensInTime(budget, 0), 3900, 80);
}

TEST(StepBudgetTest, AStepWithoutDecodesMayTakeFourTimesTheFixedTime) {
  Machine machine{.fixed_us = 400'000, .us_per_token = 15'000};
  StepBudget budget(300'000);
  RunDecodes(&machine, 1, 1, &budget);
  RunPrompt(&machine, 1, 20, &budget);
  EXPECT_NEAR(TokensInTime(budget, 0), 80, 2) << "3 * 400 ms for 15 ms each";
}

TEST(StepBudgetTest, StaysInItsRangeWhateverIsMeasured) {
  StepBudget budget(1000);
  std::mt19937 random(2);
  for (int i = 0; i < 10'000; ++i) {
    budget.Record(1 + static_cast<int>(random() % 64), static_cast<int64_t>(random() % (i % 7 == 0 ? 1 : 100'000'000)));
    const StepLimit& limit = budget.limit();
    ASSERT_GE(limit.fixed_us, 0);
    ASSERT_GE(limit.us_per_token, 0);
    ASSERT_GE(TokensInTime(budget, 3), 3 + StepLimit::kMinPromptTokens);
    ASSERT_GE(limit.MaxTokens({3, 1, 1000, 1000}), 3 + StepLimit::kMinPromptTokens);
  }
}

}  // namespace
}  // namespace quire
