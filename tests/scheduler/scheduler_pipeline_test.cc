// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A scheduler with two plans in flight.
class SchedulerPipelineTest : public SchedulerTest {
 protected:
  SchedulerPipelineTest() { model_.stop_percent = 30; }

  static SchedulerOptions TwoPlans() {
    SchedulerOptions options = Options();
    options.max_plans_in_flight = 2;
    return options;
  }

  // The request generates a stop token as its `num_tokens`th token.
  Request RequestThatStopsAfter(size_t num_tokens) {
    Request request = MakeRequest(1, 3, 5);
    request.stop_token_ids = {ShadowModel::kStopToken};
    while (SoloTokens(model_, request).size() != num_tokens) ++request.sampling.seed;
    return request;
  }
};

TEST_F(SchedulerPipelineTest, NextPlanContinuesWithATokenThatOnlyTheWorkerKnows) {
  Make(8, TwoPlans());
  Submit(1, 4, 4);
  EXPECT_EQ(Shape(Plan()), "0:0+4*");
  EXPECT_EQ(Shape(Plan()), "0:4+1*");
  EXPECT_EQ(scheduler_->num_plans_in_flight(), 2);
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:5+1*");
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:6+1*");
  Commit();
  EXPECT_THAT(Commit().finished, ElementsAre(Finished{RequestId{1}, 0, FinishReason::kLength, true}));
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerPipelineTest, MaxTokensWastesNoRow) {
  Make(8, TwoPlans());
  Submit(1, 4, 2);
  EXPECT_EQ(Shape(Plan()), "0:0+4*");
  EXPECT_EQ(Shape(Plan()), "0:4+1*");
  Commit();
  EXPECT_EQ(Shape(Plan()), "");
  Commit();
  EXPECT_EQ(scheduler_->counts().scheduled_tokens, 5);
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerPipelineTest, StopTokenWastesOneRowAndDropsItsToken) {
  Make(8, TwoPlans());
  Submit(RequestThatStopsAfter(2));
  EXPECT_EQ(Shape(Plan()), "0:0+3*");
  EXPECT_EQ(Shape(Plan()), "0:3+1*");
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:4+1*");  // This slice is wasted, because the token at position 4 is a stop token.
  EXPECT_THAT(Commit().finished, ElementsAre(Finished{RequestId{1}, 0, FinishReason::kStopToken, true}));
  EXPECT_EQ(blocks_->counts().used, 0);
  EXPECT_EQ(Shape(Plan()), "");
  EXPECT_EQ(Commit(), StepOutput());
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerPipelineTest, RowAndBlocksOfAWastedSliceGoToTheNextRequest) {
  SchedulerOptions options = TwoPlans();
  options.max_sequences = 1;
  Make(2, options);
  Submit(RequestThatStopsAfter(1));
  Submit(2, 5, 1);
  EXPECT_EQ(Shape(Plan()), "0:0+3*");
  EXPECT_EQ(Shape(Plan()), "0:3+1*");  // This slice is wasted.
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:0+5*");
  EXPECT_EQ(Commit(), StepOutput());
  EXPECT_THAT(Commit().emissions, SizeIs(1));
  EXPECT_EQ(Emitted(1), Solo(1));
  EXPECT_EQ(Emitted(2), Solo(2));
}

TEST_F(SchedulerPipelineTest, CancelDropsBothResults) {
  Make(8, TwoPlans());
  Submit(1, 4, 8);
  Plan();
  Plan();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(Commit(), StepOutput());
  EXPECT_EQ(Commit(), StepOutput());
  EXPECT_EQ(Shape(Plan()), "");
}

TEST_F(SchedulerPipelineTest, TokenOfAPreemptedRequestInFlightIsKept) {
  Make(4, TwoPlans());
  Submit(1, 8, 4);
  Submit(2, 4, 4);
  EXPECT_EQ(Shape(Plan()), "0:0+8* 1:0+4*");
  EXPECT_EQ(Shape(Plan()), "0:8+1*");
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_THAT(Commit().emissions, SizeIs(2));
  EXPECT_EQ(Emitted(2).size(), 1u);
  EXPECT_EQ(Shape(Plan()), "0:9+1*");
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:10+1*");
  Commit();
  EXPECT_EQ(Shape(Plan()), "");  // The last token of request 1 is in flight; it holds 3 of 4 blocks.
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:0+5*");
}

TEST_F(SchedulerPipelineTest, PreemptedRequestWithItsLastTokenInFlightLosesNoWork) {
  Make(3, TwoPlans());
  Submit(1, 4, 1);
  Submit(2, 8, 3);
  EXPECT_EQ(Shape(Plan()), "0:0+4* 1:0+8*");
  EXPECT_EQ(Shape(Plan()), "1:8+1*");  // Request 2 has the block of request 1, which does not need it any more.
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_THAT(Commit().finished, ElementsAre(Finished{RequestId{1}, 0, FinishReason::kLength, true}));
  EXPECT_EQ(Emitted(1), Solo(1));
  EXPECT_EQ(scheduler_->counts().waiting, 0);
  EXPECT_EQ(scheduler_->counts().recomputed_tokens, 0);
}

TEST_F(SchedulerPipelineTest, PreemptedRequestWaitsForItsResultsInFlight) {
  SchedulerOptions options = TwoPlans();
  options.policy = SchedulingPolicy::kPriority;
  Make(3, options);
  Submit(1, 4, 1, /*priority=*/0);
  Submit(2, 8, 3, /*priority=*/1);
  EXPECT_EQ(Shape(Plan()), "0:0+4* 1:0+8*");
  EXPECT_EQ(Shape(Plan()), "");  // Request 2 is preempted although nobody takes its blocks.
  EXPECT_EQ(scheduler_->counts().preemptions, 1);
  EXPECT_EQ(Shape(Plan()), "");  // Its blocks are free, but its ninth token is not known yet.
  Commit();
  EXPECT_EQ(Shape(Plan()), "0:0+9*");
}

TEST_F(SchedulerPipelineTest, LostWorkerVoidsThePlansAndTheSameTokensFollow) {
  Make(8, TwoPlans());
  Submit(1, 4, 6);
  Plan();
  Plan();
  Commit();
  Plan();
  scheduler_->AbandonAll();
  EXPECT_EQ(blocks_->counts().used, 0);
  EXPECT_EQ(scheduler_->counts().waiting, 1);
  EXPECT_EQ(scheduler_->num_plans_in_flight(), 0);
  sent_.clear();
  NewWorker();
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.step, StepId{1});
  EXPECT_EQ(Shape(plan), "0:0+5*");
  EXPECT_THAT(Commit().started, IsEmpty());
  RunToTheEnd();
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerPipelineTest, LostWorkerKeepsTheOrderOfRequests) {
  SchedulerOptions options = TwoPlans();
  options.max_sequences = 2;
  Make(8, options);
  Submit(1, 4, 6);
  Submit(2, 5, 6);
  Submit(3, 6, 6);
  Plan();
  scheduler_->AbandonAll();
  sent_.clear();
  NewWorker();
  EXPECT_EQ(Shape(Plan()), "0:0+4* 1:0+5*");
}

}  // namespace
}  // namespace quire
