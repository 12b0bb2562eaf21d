// SPDX-License-Identifier: Apache-2.0

// Tests what happens when the worker postpones draws.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SchedulerPostponedTest : public SchedulerTest {
 protected:
  static SchedulerOptions TwoPlans() {
    SchedulerOptions options = Options();
    options.max_plans_in_flight = 2;
    return options;
  }
  // The answer to step `step`, whose only slice is postponed.
  static StepResult Postponed(uint64_t step) {
    StepResult result{.step = StepId{step}, .slices = std::vector<SliceResult>(1)};
    result.slices[0].is_postponed = true;
    return result;
  }
};

TEST_F(SchedulerPostponedTest, TheNextPlanRepeatsTheDraw) {
  Make(16);
  Submit(1, 5, 6);
  EXPECT_EQ(Shape(Plan()), "0:0+5*");
  EXPECT_EQ(scheduler_->CheckResult(Postponed(1)), absl::OkStatus());
  EXPECT_THAT(scheduler_->Commit(Postponed(1)).emissions, IsEmpty());
  EXPECT_EQ(Shape(Plan()), "0:5+0*") << "all five tokens are computed";
  EXPECT_THAT(scheduler_->Commit(Postponed(2)).emissions, IsEmpty());
  EXPECT_EQ(Shape(Plan()), "0:5+0*");
  EXPECT_EQ(scheduler_->counts().recomputed_tokens, 0);
}

TEST_F(SchedulerPostponedTest, APlanThatCountsOnTheTokenIsPostponedAsWell) {
  Make(16, TwoPlans());
  Submit(1, 5, 6);
  EXPECT_EQ(Shape(Plan()), "0:0+5*");
  EXPECT_EQ(Shape(Plan()), "0:5+1*");
  scheduler_->Commit(Postponed(1));
  EXPECT_TRUE(scheduler_->Plan().empty());
  StepResult drawn{.step = StepId{2}, .slices = std::vector<SliceResult>(1)};
  drawn.slices[0].sampled = true;
  EXPECT_THAT(std::string(scheduler_->CheckResult(drawn).message()), HasSubstr("behind one whose draw was postponed"));
  scheduler_->Commit(Postponed(2));
  EXPECT_EQ(Shape(Plan()), "0:5+0*");
}

TEST_F(SchedulerPostponedTest, ASliceThatDrawsNothingCannotBePostponed) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 4;
  Make(16, options);
  Submit(1, 6, 6);
  EXPECT_EQ(Shape(Plan()), "0:0+4");
  EXPECT_THAT(std::string(scheduler_->CheckResult(Postponed(1)).message()), HasSubstr("its slice draws nothing"));
}

TEST_F(SchedulerPostponedTest, SamplesThatHaveDrawnNothingShareTheWholePromptAfterALoss) {
  Make(5);  // The two blocks of the prompt, and one for each sample.
  Request samples = MakeRequest(1, 8, 5);
  samples.num_samples = 3;
  Submit(samples);
  EXPECT_EQ(Shape(Plan()), "0:0+8* 1:8+0* 2:8+0*");
  StepResult result = *worker_->Execute(sent_.front());
  sent_.clear();
  for (const int i : {1, 2}) {
    result.slices[i] = {};
    result.slices[i].is_postponed = true;
  }
  emitted_[RequestId{1}].push_back(scheduler_->Commit(result).emissions[0].token.token);
  scheduler_->AbandonAll();
  NewWorker();
  EXPECT_EQ(Step(), "0:0+9*");
  EXPECT_EQ(Step(), "0:9+1* 1:8+0* 2:8+0*");
  RunToTheEnd();
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
}

TEST_F(SchedulerPostponedTest, TokensAreThoseOfARequestWhoseDrawsAreNotPostponed) {
  has_prefix_cache_ = true;
  for (const int num_plans : {1, 2}) {
    SchedulerOptions options = Options();
    options.max_plans_in_flight = num_plans;
    Make(64, options);
    worker_->Postpone(3);
    emitted_.clear();
    Request samples = MakeRequest(2, 8, 9);
    samples.num_samples = 3;
    Submit(1, 5, 20);
    Submit(samples);
    for (int i = 0; i < 200 && scheduler_->counts().waiting + scheduler_->counts().running > 0; ++i) {
      while (static_cast<int>(sent_.size()) < num_plans && !Plan().empty()) {
      }
      Commit();
    }
    EXPECT_EQ(Emitted(1), Solo(1));
    EXPECT_EQ(Emitted(2), Solo(2));
    EXPECT_EQ(blocks_->counts().used, 0);
  }
}

}  // namespace
}  // namespace quire
