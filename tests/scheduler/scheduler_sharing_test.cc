// SPDX-License-Identifier: Apache-2.0

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = WaitReason::Kind;

// A scheduler with the prefix cache and blocks of 4 tokens.
class SchedulerSharingTest : public SchedulerTest {
 protected:
  SchedulerSharingTest() { has_prefix_cache_ = true; }

  static Request Samples(uint64_t id, int prompt_length, int max_tokens, int num_samples) {
    Request request = MakeRequest(id, prompt_length, max_tokens);
    request.num_samples = num_samples;
    return request;
  }
};

TEST_F(SchedulerSharingTest, SamplesPrefillTheirPromptOnceAndDrawFromItsLogits) {
  Make(64);
  Submit(Samples(1, 10, 4, 3));
  const StepPlan plan = Plan();
  EXPECT_EQ(Shape(plan), "0:0+10* 1:10+0* 2:10+0*");
  EXPECT_EQ(plan.num_tokens(), 10);
  EXPECT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.forks.size(), 2u);
  EXPECT_EQ(Commit().emissions.size(), 3u);
  EXPECT_EQ(scheduler_->counts().forks, 2);
}

TEST_F(SchedulerSharingTest, EightSamplesOfAThousandTokensHoldOnePromptAndATailEach) {
  Make(1000);
  Submit(Samples(1, 1001, 8, 8));  // 250 whole blocks and a token in one more.
  while (scheduler_->counts().forks == 0) Step();
  EXPECT_EQ(blocks_->counts().used, 251) << "nobody has written behind the prompt yet";
  Plan();
  EXPECT_EQ(blocks_->counts().used, 250 + 8) << "seven copies of the partial block, the last owner writes in place";
  Commit();
  RunToTheEnd();
}

TEST_F(SchedulerSharingTest, SamplesOfAPromptOfWholeBlocksNeedNoCopy) {
  Make(64);
  Submit(Samples(1, 8, 4, 3));
  Step();
  const StepPlan plan = Plan();
  EXPECT_THAT(plan.copies, IsEmpty());
  EXPECT_EQ(blocks_->counts().used, 2 + 3);
}

TEST_F(SchedulerSharingTest, ACancelledSampleLeavesTheOthersAlone) {
  Make(64);
  Submit(Samples(1, 10, 6, 3));
  Step();
  EXPECT_TRUE(scheduler_->CancelSample(RequestId{1}, 1));
  EXPECT_FALSE(scheduler_->CancelSample(RequestId{1}, 1));
  std::set<int> indices;
  while (scheduler_->counts().running > 0) {
    Step();
    for (const Emission& emission : output_.emissions) indices.insert(emission.sample_index);
  }
  EXPECT_THAT(indices, ElementsAre(0, 2));
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerSharingTest, TheRequestGoesWithItsLastSample) {
  Make(64);
  Submit(Samples(1, 10, 6, 2));
  Step();
  EXPECT_TRUE(scheduler_->CancelSample(RequestId{1}, 0));
  EXPECT_TRUE(scheduler_->CancelSample(RequestId{1}, 1));
  EXPECT_FALSE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerSharingTest, TheSecondRequestStartsWhereTheFirstOneWas) {
  Make(64);
  Submit(1, 10, 1);
  EXPECT_EQ(Step(), "0:0+10*");
  Submit(2, 12, 1);
  EXPECT_EQ(Step(), "0:8+4*");
  EXPECT_THAT(output_.started, ElementsAre(Started{RequestId{2}, 8}));
}

TEST_F(SchedulerSharingTest, OnlyTokensOfThePromptCountAsCachedPromptTokens) {
  Make(64);
  Submit(1, 4, 9);
  RunToTheEnd();
  Request request = MakeRequest(2, 4, 12);
  const std::vector<TokenId> generated(Emitted(1).begin(), Emitted(1).begin() + 8);
  request.continued = {{.sample_index = 0, .tokens = generated}};
  emitted_[request.id] = generated;
  Submit(request);
  EXPECT_EQ(Step(), "0:11+1*");
  EXPECT_THAT(output_.started, ElementsAre(Started{RequestId{2}, 4}));
}

TEST_F(SchedulerSharingTest, AHitMayEndInsideABlockWhichIsThenCopied) {
  Make(64);
  Submit(1, 12, 1);
  Step();
  Request request = MakeRequest(2, 12, 1);
  request.prompt[10] = 500;
  Submit(request);
  const StepPlan plan = Plan();
  EXPECT_EQ(Shape(plan), "0:10+2*");
  EXPECT_EQ(plan.copies.size(), 1u);
  Commit();
}

TEST_F(SchedulerSharingTest, TheLastTokenOfAPromptIsAlwaysComputed) {
  Make(64);
  Submit(1, 8, 1);
  Step();
  Submit(2, 8, 1);
  EXPECT_EQ(Step(), "0:7+1*");
}

TEST_F(SchedulerSharingTest, OtherSaltsAndBypassesFindNothing) {
  Make(64);
  Submit(1, 8, 1);
  Step();
  Request salted = MakeRequest(2, 8, 1);
  salted.cache_salt = "tenant";
  Submit(salted);
  EXPECT_EQ(Step(), "0:0+8*");
  Request bypass = MakeRequest(3, 8, 1);
  bypass.bypass_prefix_cache = true;
  Submit(bypass);
  EXPECT_EQ(Step(), "0:0+8*");
}

TEST_F(SchedulerSharingTest, OfTwoThatArriveTogetherTheSecondWaitsForThePrefixOfTheFirst) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 8;
  Make(64, options);
  Submit(1, 20, 4);
  Submit(2, 18, 4);
  EXPECT_EQ(Step(), "0:0+8");
  EXPECT_EQ(scheduler_->ExplainWait(RequestId{2})->kind, Kind::kPrefix);
  EXPECT_EQ(Step(), "0:8+8");
  EXPECT_EQ(Step(), "0:16+4* 1:16+2*");
}

TEST_F(SchedulerSharingTest, WhoWaitedForAPrefixComputesItWhenItsOwnerIsGone) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 8;
  Make(64, options);
  Submit(1, 20, 4);
  Submit(2, 18, 4);
  Step();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(Step(), "0:8+8");
  EXPECT_EQ(Step(), "0:16+2*");
}

// After a loss the second beam shares the prompt's blocks while the first one still computes them.
TEST_F(SchedulerSharingTest, WhatABeamWaitsForIsNotCachedWhenItIsCancelled) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(16, options);
  Request request = MakeRequest(1, 16, 4);
  request.beam = BeamParams{.width = 2};
  Submit(request);
  for (int i = 0; i < 4; ++i) Step();
  scheduler_->AbandonAll();
  NewWorker();
  Step();
  EXPECT_TRUE(scheduler_->Cancel(request.id));
  Submit(2, 16, 1);
  RunToTheEnd();
  EXPECT_EQ(scheduler_->counts().cached_tokens, 4);
  EXPECT_EQ(Emitted(2), Solo(2));
}

TEST_F(SchedulerSharingTest, ReasonsToWaitNameWhatIsMissing) {
  SchedulerOptions options = Options();
  options.max_sequences = 4;
  options.watermark = 0.1;
  Make(8, options);
  EXPECT_FALSE(scheduler_->ExplainWait(RequestId{1}).has_value());
  Submit(1, 16, 8);
  Step();
  EXPECT_EQ(scheduler_->ExplainWait(RequestId{1})->kind, Kind::kRuns);
  Request large = MakeRequest(2, 18, 4);
  for (TokenId& token : large.prompt) token += 500;
  Submit(large);
  Submit(3, 2, 2);
  Step();
  const WaitReason blocks = *scheduler_->ExplainWait(RequestId{2});
  EXPECT_EQ(blocks.kind, Kind::kBlocks);
  EXPECT_EQ(blocks.num_blocks, 5);
  EXPECT_EQ(blocks.num_free_blocks, 3);
  EXPECT_EQ(blocks.num_watermark_blocks, 1);
  const WaitReason behind = *scheduler_->ExplainWait(RequestId{3});
  EXPECT_EQ(behind.kind, Kind::kBehindOthers);
  EXPECT_EQ(behind.num_ahead, 1);
  Submit(Samples(4, 2, 2, 4));
  EXPECT_EQ(scheduler_->ExplainWait(RequestId{4})->kind, Kind::kRows);
}

TEST_F(SchedulerSharingTest, AStaticBatchLetsNobodyInUntilItHasEnded) {
  SchedulerOptions options = Options();
  options.batching = Batching::kStatic;
  has_prefix_cache_ = false;
  Make(64, options);
  Submit(1, 5, 2);
  Submit(2, 3, 4);
  EXPECT_EQ(Step(), "0:0+5* 1:0+3*");
  EXPECT_EQ(Step(), "0:5+1* 1:3+1*");
  Submit(3, 3, 1);
  EXPECT_EQ(Step(), "1:4+1*");
  EXPECT_EQ(scheduler_->ExplainWait(RequestId{3})->kind, Kind::kBatchIsClosed);
  EXPECT_EQ(Step(), "1:5+1*");
  EXPECT_EQ(Step(), "0:0+3*");
}

TEST_F(SchedulerSharingTest, NewcomersWaitUntilTheyAreEnoughForTheRatio) {
  SchedulerOptions options = Options();
  options.waiting_served_ratio = 2;
  has_prefix_cache_ = false;
  Make(64, options);
  Submit(1, 5, 8);
  EXPECT_EQ(Step(), "0:0+5*");
  Submit(2, 3, 1);
  EXPECT_EQ(Step(), "0:5+1*");
  Submit(3, 3, 1);
  EXPECT_EQ(Step(), "0:6+1* 1:0+3* 2:0+3*");
}

}  // namespace
}  // namespace quire
