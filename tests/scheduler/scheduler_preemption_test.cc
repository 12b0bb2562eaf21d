// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using SchedulerAdmissionTest = SchedulerTest;
using SchedulerPreemptionTest = SchedulerTest;

TEST_F(SchedulerAdmissionTest, WholeContextMustFitEvenWhenTheFirstChunkWould) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(4, options);
  Submit(1, 4, 1);
  Submit(2, 16, 1);  // 4 blocks.
  EXPECT_EQ(Step(), "0:0+4*");
  EXPECT_EQ(Step(), "0:0+4");
}

TEST_F(SchedulerAdmissionTest, WholeContextIsTakenAtOnce) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(4, options);
  Submit(1, 12, 1);  // 3 blocks, and 1 of them in the first step.
  Submit(2, 8, 1);   // 2 blocks would be free if only chunks took blocks.
  EXPECT_EQ(Step(), "0:0+4");
  EXPECT_EQ(blocks_->counts().used, 3);
}

TEST_F(SchedulerAdmissionTest, NobodyOvertakesARequestThatDoesNotFit) {
  Make(4);
  Submit(1, 8, 2);   // 2 blocks, then 3.
  Submit(2, 12, 1);  // 3 blocks.
  Submit(3, 1, 1);   // 1 block would be free.
  EXPECT_EQ(Step(), "0:0+8*");
  EXPECT_EQ(Step(), "0:8+1*");
  EXPECT_EQ(Step(), "0:0+12* 1:0+1*");
}

TEST_F(SchedulerAdmissionTest, WatermarkKeepsBlocksFreeForTheRunning) {
  SchedulerOptions options = Options();
  options.watermark = 0.25;  // 2 of 8 blocks.
  Make(8, options);
  Submit(1, 8, 2);   // 2 blocks: 6 are left.
  Submit(2, 20, 1);  // 5 blocks: 1 would be left.
  EXPECT_EQ(Step(), "0:0+8*");
  scheduler_->Cancel(RequestId{2});
  Submit(3, 12, 1);  // 3 blocks: 2 are left once request 1 has its third.
  EXPECT_EQ(Step(), "0:8+1* 1:0+12*");
}

TEST_F(SchedulerAdmissionTest, IdlePoolAdmitsWhatFitsAtAll) {
  SchedulerOptions options = Options();
  options.watermark = 0.5;
  Make(4, options);
  Submit(1, 15, 2);
  EXPECT_EQ(Step(), "0:0+15*");
  EXPECT_EQ(Step(), "0:15+1*");
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerPreemptionTest, RequestThatLosesTheLeastWorkIsPreemptedAndRecomputed) {
  Make(4);
  Submit(1, 8, 4);  // 2 blocks, and one more in the second step.
  Submit(2, 4, 4);  // 1 block, and one more in the second step.
  EXPECT_EQ(Step(), "0:0+8* 1:0+4*");
  EXPECT_EQ(Step(), "0:8+1*");
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_EQ(scheduler_->counts().waiting, 1);
  EXPECT_EQ(Step(), "0:9+1*");  // Request 2 has 5 tokens now and needs 2 blocks; 1 is free.
  EXPECT_EQ(Step(), "0:10+1*");
  EXPECT_THAT(output_.finished, ElementsAre(Finished{RequestId{1}, 0, FinishReason::kLength, true}));
  const StepPlan plan = Plan();
  EXPECT_EQ(Shape(plan), "0:0+5*");
  EXPECT_EQ(plan.starts[0].prompt_length, 4);
  EXPECT_EQ(plan.starts[0].tokens.size(), 5u);
  Commit();
  EXPECT_EQ(scheduler_->counts().recomputed_tokens, 4);
  RunToTheEnd();
  EXPECT_EQ(Emitted(1), Solo(1));
  EXPECT_EQ(Emitted(2), Solo(2));
}

TEST_F(SchedulerPreemptionTest, NothingIsAdmittedInAStepThatPreempted) {
  Make(5);
  Submit(1, 8, 3);
  Submit(2, 8, 3);
  EXPECT_EQ(Step(), "0:0+8* 1:0+8*");
  Submit(3, 4, 1);
  EXPECT_EQ(Step(), "0:8+1*");  // Preempting 2 leaves 2 blocks free, enough for 3.
  EXPECT_EQ(blocks_->counts().free, 2);
  EXPECT_EQ(Step(), "0:9+1*");  // Neither may it overtake request 2, which needs 3 blocks.
  EXPECT_EQ(Step(), "0:0+9* 1:0+4*");
}

TEST_F(SchedulerPreemptionTest, PreemptedRequestGoesAheadOfNewcomers) {
  Make(5);
  Submit(1, 8, 2);
  Submit(2, 8, 2);
  EXPECT_EQ(Step(), "0:0+8* 1:0+8*");
  Submit(3, 9, 2);
  EXPECT_EQ(Step(), "0:8+1*");
  EXPECT_EQ(Step(), "0:0+9*");
  EXPECT_THAT(output_.finished, ElementsAre(Finished{RequestId{2}, 0, FinishReason::kLength, true}));
}

TEST_F(SchedulerPreemptionTest, LeastUrgentIsPreemptedEvenWhenItLosesMoreWork) {
  SchedulerOptions options = Options();
  options.policy = SchedulingPolicy::kPriority;
  Make(4, options);
  Submit(1, 8, 4, /*priority=*/1);
  Submit(2, 4, 4, /*priority=*/0);
  EXPECT_EQ(Step(), "0:0+4* 1:0+8*");
  EXPECT_EQ(Step(), "0:4+1*");
}

TEST_F(SchedulerPreemptionTest, OfEqualsTheLatestSubmittedIsPreempted) {
  Make(3);
  Submit(1, 4, 4);
  Submit(2, 4, 4);
  Submit(3, 4, 4);
  EXPECT_EQ(Step(), "0:0+4* 1:0+4* 2:0+4*");
  EXPECT_EQ(Step(), "0:4+1*");  // Request 3 is preempted for request 1. Request 2 finds no block and is preempted too.
  EXPECT_EQ(scheduler_->counts().preemptions, 2);
  RunToTheEnd();
  for (int id = 1; id <= 3; ++id) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerPreemptionTest, VictimServedEarlierInThePlanLosesItsSlice) {
  Make(3);
  Submit(1, 2, 8);
  Submit(2, 8, 3);
  EXPECT_EQ(Step(), "0:0+2* 1:0+8*");
  EXPECT_EQ(Step(), "1:8+1*");  // Request 1 had room for position 2, but 2 has more to lose.
  RunToTheEnd();
  EXPECT_EQ(Emitted(1), Solo(1));
  EXPECT_EQ(Emitted(2), Solo(2));
}

TEST_F(SchedulerPreemptionTest, TokensOfAVictimGoBackToTheBudget) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 15;
  Make(8, options);
  Submit(1, 2, 8);
  Submit(2, 8, 3);
  Submit(3, 20, 1);
  EXPECT_EQ(Step(), "0:0+2* 1:0+8* 2:0+5");
  EXPECT_EQ(Step(), "1:8+1* 2:5+14");  // Request 2 takes the block of 1, request 3 its token.
}

TEST_F(SchedulerPreemptionTest, LastRunningRequestKeepsItsBlocksToTheEnd) {
  Make(3);
  Submit(1, 5, 8);  // 12 slots.
  RunToTheEnd();
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
  EXPECT_EQ(Emitted(1), Solo(1));
}

// Three of four samples have copied their last block when the next one finds no free block. Their request is preempted,
// but the copies of the plan would still hold its blocks.
TEST_F(SchedulerPreemptionTest, CopiesOfAVictimDoNotKeepItsBlocksFromTheOthers) {
  Make(6);
  Request samples = MakeRequest(1, 1, 2);
  samples.num_samples = 4;
  Request beams = MakeRequest(2, 5, 2);
  beams.beam = BeamParams{.width = 2};
  Submit(samples);
  Submit(beams);
  Step();
  EXPECT_NE(Step(), "");
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  RunToTheEnd();
}

TEST_F(SchedulerPreemptionTest, PromptLogprobsAreNotRepeated) {
  Make(4);
  Submit(1, 8, 4);
  Request request = MakeRequest(2, 4, 4);
  request.sampling.num_prompt_logprobs = 0;
  Submit(request);
  EXPECT_EQ(Step(), "0:0+8* 1:0+4*");
  EXPECT_EQ(output_.prompt_logprobs.size(), 1u);
  std::vector<PromptLogprobs> repeated;
  for (int i = 0; i < 10; ++i) {
    Step();
    repeated.insert(repeated.end(), output_.prompt_logprobs.begin(), output_.prompt_logprobs.end());
  }
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_EQ(Emitted(2), Solo(2));
  EXPECT_THAT(repeated, IsEmpty());
}

TEST_F(SchedulerPreemptionTest, PreemptedRequestCanBeCancelled) {
  Make(4);
  Submit(1, 8, 4);
  Submit(2, 4, 4);
  Step();
  Step();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{2}));
  RunToTheEnd();
  EXPECT_EQ(Emitted(2).size(), 1u);
}

}  // namespace
}  // namespace quire
