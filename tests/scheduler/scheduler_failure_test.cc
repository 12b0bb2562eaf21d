// SPDX-License-Identifier: Apache-2.0

// Tests what happens when the worker ends one sequence and its session continues.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class SchedulerFailureTest : public SchedulerTest {
 protected:
  // The worker answers the oldest plan, and says that the sequences in these slices have failed.
  StepOutput CommitWithFailures(const std::vector<int>& slices) {
    const StepPlan plan = sent_.front();
    sent_.pop_front();
    absl::StatusOr<StepResult> result = worker_->Execute(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    for (const int i : slices) result->slices[i] = worker_->Fail(plan.slices[i], plan.slices[i].first_position);
    EXPECT_EQ(scheduler_->CheckResult(*result), absl::OkStatus());
    const StepOutput output = scheduler_->Commit(*std::move(result));
    EXPECT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    return output;
  }
  void ExpectOthersGoOn(uint64_t id) {
    RunToTheEnd();
    EXPECT_EQ(Emitted(id), Solo(id));
  }
};

TEST_F(SchedulerFailureTest, TheRequestEndsAndItsNeighbourGoesOn) {
  Make(16);
  Submit(1, 5, 6);
  Submit(2, 6, 6);
  Plan();
  const StepOutput output = CommitWithFailures({0});
  ASSERT_THAT(output.failed, SizeIs(1));
  EXPECT_EQ(output.failed[0].request, RequestId{1});
  EXPECT_EQ(output.failed[0].sample_index, std::nullopt);
  EXPECT_EQ(output.failed[0].failure.reason, SequenceFailure::Reason::kLogitsNotFinite);
  EXPECT_EQ(scheduler_->counts().running, 1);
  EXPECT_EQ(scheduler_->FindGroup(RequestId{1}), nullptr);
  emitted_[RequestId{2}] = {output.emissions.at(0).token.token};
  ExpectOthersGoOn(2);
}

TEST_F(SchedulerFailureTest, TheNextPlanMayStillHaveTheSequence) {
  SchedulerOptions options = Options();
  options.max_plans_in_flight = 2;
  Make(16, options);
  Submit(1, 5, 6);
  Submit(2, 6, 6);
  Plan();
  EXPECT_EQ(Shape(Plan()), "0:5+1* 1:6+1*");
  emitted_[RequestId{2}] = {CommitWithFailures({0}).emissions.at(0).token.token};
  const StepOutput second = CommitWithFailures({0});
  EXPECT_THAT(second.failed, IsEmpty()) << "the request has failed already";
  emitted_[RequestId{2}].push_back(second.emissions.at(0).token.token);
  ExpectOthersGoOn(2);
}

TEST_F(SchedulerFailureTest, OneSampleEndsTheWholeRequest) {
  Make(16);
  Request request = MakeRequest(1, 5, 6);
  request.num_samples = 3;
  Submit(request);
  Step();
  Plan();
  const StepOutput output = CommitWithFailures({1});
  ASSERT_THAT(output.failed, SizeIs(1));
  EXPECT_EQ(output.failed[0].sample_index, 1);
  EXPECT_EQ(scheduler_->counts().running, 0);
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerFailureTest, ABeamEndsTheWholeSearch) {
  Make(16);
  Request request = MakeRequest(1, 5, 6);
  request.beam = BeamParams{.width = 2};
  Submit(request);
  Step();
  Plan();
  EXPECT_THAT(CommitWithFailures({0}).failed, SizeIs(1));
  EXPECT_EQ(scheduler_->counts().running, 0);
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerFailureTest, WhatItHasComputedLeavesThePrefixCache) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 12, 6);
  Plan();
  CommitWithFailures({0});
  EXPECT_EQ(blocks_->num_cached_blocks(), 0);
  Submit(2, 12, 6);
  EXPECT_EQ(Step(), "0:0+12*") << "nothing of it is cached";
  ExpectOthersGoOn(2);
}

TEST_F(SchedulerFailureTest, WhatAnEndedSequenceHadInFlightLeavesThePrefixCache) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 7, 6);
  Step();
  Plan();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(blocks_->num_cached_blocks(), 2) << "the next request may begin with the same tokens";
  CommitWithFailures({0});
  EXPECT_EQ(blocks_->num_cached_blocks(), 1) << "a token was drawn from the first block, not from the second";
}

TEST_F(SchedulerFailureTest, WhatAnEndedSequenceHadInFlightStaysCachedIfItIsSound) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 7, 6);
  Step();
  Plan();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  Commit();
  EXPECT_EQ(blocks_->num_cached_blocks(), 2);
}

TEST_F(SchedulerFailureTest, TheFailureOfAGuideLeavesTheCacheAsItIs) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 12, 6);
  const StepPlan plan = Plan();
  StepResult result = *worker_->Execute(plan);
  result.slices[0] = SliceResult();
  result.slices[0].failure = {plan.starts[0].sequence, SequenceFailure::Reason::kGuideTooExpensive,
                              "it takes too long"};
  EXPECT_THAT(scheduler_->Commit(result).failed, SizeIs(1));
  EXPECT_EQ(blocks_->num_cached_blocks(), 3);
}

TEST_F(SchedulerFailureTest, WhatOthersHaveReadSoundlyStaysCached) {
  has_prefix_cache_ = true;
  Make(16);
  Submit(1, 9, 1);
  Step();
  Submit(2, 16, 6);
  EXPECT_EQ(Shape(Plan()), "0:8+8*");
  CommitWithFailures({0});
  EXPECT_EQ(blocks_->num_cached_blocks(), 2);
}

TEST_F(SchedulerFailureTest, ARequestThatWaitsForItsPrefixComputesItAlone) {
  has_prefix_cache_ = true;
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(16, options);
  Submit(1, 12, 6);
  Submit(2, 12, 6);
  EXPECT_EQ(Shape(Plan()), "0:0+4") << "the second request waits for the prefix";
  CommitWithFailures({0});
  EXPECT_EQ(Shape(Plan()), "0:0+4");
  Commit();
  ExpectOthersGoOn(2);
}

TEST_F(SchedulerFailureTest, ARequestThatWasPreemptedMeanwhileFailsAsWell) {
  SchedulerOptions options = Options();
  options.max_plans_in_flight = 2;
  Make(4, options);
  Submit(1, 7, 6);
  Submit(2, 7, 6);
  Step();
  Plan();
  Plan();
  ASSERT_EQ(scheduler_->counts().waiting, 1) << "the second request has lost its blocks";
  EXPECT_THAT(CommitWithFailures({1}).failed, SizeIs(1));
  EXPECT_EQ(scheduler_->counts().waiting, 0);
}

}  // namespace
}  // namespace quire
