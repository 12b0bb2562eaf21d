// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "tests/worker/generation.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

v1::StepResult RunOrDie(TestWorker* worker, const PlanBuilder& builder) {
  absl::StatusOr<v1::StepResult> result = worker->Run(builder.plan());
  QUIRE_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

// A prompt of 6 tokens, which fills block 0 and half of block 1, and another prompt.
class SwapTest : public ::testing::Test {
 protected:
  SwapTest() {
    alone_ = Generate(&worker_, {.prompt = Tokens(10, 6), .num_tokens = 4}).tokens;
    other_alone_ = Generate(&worker_, {.prompt = Tokens(50, 6), .num_tokens = 4}).tokens;
    worker_.executor().Reset();
  }

  TestWorker worker_{{.num_host_blocks = 4}};
  std::vector<TokenId> alone_, other_alone_;
};

TEST_F(SwapTest, ASequenceGoesOnFromItsSwappedBlocksAsIfTheyHadNeverLeft) {
  std::vector<TokenId> tokens, other;
  auto result = RunOrDie(&worker_, PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, {0, 1}));
  tokens.push_back(result.token_ids(0));
  // The blocks are swapped out, and in the same step another sequence writes to them.
  result = RunOrDie(&worker_,
                    PlanBuilder(2).SwapOut(0, 3).SwapOut(1, 0).Start(1, Tokens(50, 6)).Slice(1, 0, 6, true, {0, 1}));
  other.push_back(result.token_ids(0));
  result = RunOrDie(&worker_,
                    PlanBuilder(3).SwapIn(3, 40).SwapIn(0, 41).Slice(0, 6, 1, true, {40, 41}).Slice(1, 6, 1, true));
  tokens.push_back(result.token_ids(0));
  other.push_back(result.token_ids(1));
  result = RunOrDie(&worker_, PlanBuilder(4).Slice(0, 7, 1, true).Slice(1, 7, 1, true));
  tokens.push_back(result.token_ids(0));
  other.push_back(result.token_ids(1));
  EXPECT_EQ(tokens, std::vector<TokenId>(alone_.begin(), alone_.begin() + 3));
  EXPECT_EQ(other, std::vector<TokenId>(other_alone_.begin(), other_alone_.begin() + 3));
}

// Two sequences change places through the host tier. A copy in the same plan reads a block that is swapped in.
TEST_F(SwapTest, SwapsOutComeBeforeSwapsInAndThoseBeforeCopies) {
  RunOrDie(&worker_, PlanBuilder(1)
                         .Start(0, Tokens(10, 6))
                         .Start(1, Tokens(50, 6))
                         .Slice(0, 0, 6, true, {0, 1})
                         .Slice(1, 0, 6, true, {10, 11}));
  const auto result = RunOrDie(&worker_, PlanBuilder(2)
                                             .SwapOut(0, 0)
                                             .SwapOut(1, 1)
                                             .SwapOut(10, 2)
                                             .SwapOut(11, 3)
                                             .SwapIn(0, 10)
                                             .SwapIn(1, 11)
                                             .SwapIn(2, 0)
                                             .SwapIn(3, 1)
                                             .Copy(11, 20)
                                             .Slice(0, 6, 1, true, {10, 20})
                                             .Slice(1, 6, 1, true, {0, 1}));
  EXPECT_EQ(result.token_ids(0), static_cast<uint32_t>(alone_[1]));
  EXPECT_EQ(result.token_ids(1), static_cast<uint32_t>(other_alone_[1]));
}

TEST_F(SwapTest, APlanMayHoldSwapsAlone) {
  RunOrDie(&worker_, PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, {0, 1}));
  EXPECT_EQ(RunOrDie(&worker_, PlanBuilder(2).SwapOut(0, 0).SwapOut(1, 1)).token_ids_size(), 0);
  // The host tier keeps its contents when the session ends, and so does the pool.
  worker_.executor().Reset();
  RunOrDie(&worker_, PlanBuilder(1).Start(1, Tokens(50, 8)).Slice(1, 0, 8, false, {0, 1}));
  std::vector<TokenId> tokens = Tokens(10, 6);
  tokens.push_back(alone_[0]);
  const auto result = RunOrDie(
      &worker_, PlanBuilder(2).SwapIn(0, 2).SwapIn(1, 3).Start(0, tokens, Greedy(), 6).Slice(0, 6, 1, true, {2, 3}));
  EXPECT_EQ(result.token_ids(0), static_cast<uint32_t>(alone_[1]));
}

}  // namespace
}  // namespace quire
