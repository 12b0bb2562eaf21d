// SPDX-License-Identifier: Apache-2.0

#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/request_size.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SchedulerTest, WithoutRequestsThePlanIsEmpty) {
  Make(8);
  EXPECT_EQ(Shape(Plan()), "");
  EXPECT_EQ(scheduler_->num_plans_in_flight(), 0);
}

TEST_F(SchedulerTest, PromptIsComputedInOneStepAndEveryFurtherTokenInOne) {
  Make(8);
  Submit(1, 5, 3);
  EXPECT_EQ(Step(), "0:0+5*");
  EXPECT_EQ(Step(), "0:5+1*");
  EXPECT_THAT(output_.finished, IsEmpty());
  EXPECT_EQ(Step(), "0:6+1*");
  EXPECT_THAT(output_.finished, ElementsAre(Finished{RequestId{1}, 0, FinishReason::kLength, true}));
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(Emitted(1), Solo(1));
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerTest, EmissionsCarryPositionsAfterThePrompt) {
  Make(8);
  Submit(1, 5, 3);
  Step();
  ASSERT_EQ(output_.emissions.size(), 1u);
  EXPECT_EQ(output_.emissions[0].position, 5);
  EXPECT_EQ(output_.emissions[0].sample_index, 0);
}

TEST_F(SchedulerTest, StartIsReportedOnce) {
  Make(8);
  Submit(1, 5, 3);
  Step();
  EXPECT_THAT(output_.started, ElementsAre(Started{RequestId{1}, 0}));
  Step();
  EXPECT_THAT(output_.started, IsEmpty());
}

TEST_F(SchedulerTest, APlanTellsOfNoMoreThanItsStartsMayHold) {
  Make(8);
  for (uint64_t id = 1; id <= 3; ++id) {
    Request request = MakeRequest(id, 2, 1);
    request.sampling.allowed_token_ids.assign(id == 1 ? kMaxStartTokens - 3 : kMaxStartTokens / 2 - 2, 1);
    ASSERT_EQ(scheduler_->Submit(request), absl::OkStatus());
  }
  Submit(4, 2, 1);
  EXPECT_EQ(Shape(scheduler_->Plan()), "0:0+2*") << "the second would be too many";
  scheduler_->Cancel(RequestId{1});
  scheduler_->AbandonAll();
  EXPECT_EQ(Shape(scheduler_->Plan()), "0:0+2* 1:0+2*") << "exactly the limit";
  scheduler_->AbandonAll();
  scheduler_->Cancel(RequestId{2});
  EXPECT_EQ(Shape(scheduler_->Plan()), "0:0+2* 1:0+2*") << "nothing else waits";
}

TEST_F(SchedulerTest, StartDescribesTheSequenceToTheWorker) {
  Make(8);
  Request request = MakeRequest(7, 3, 2);
  request.sampling.temperature = 0.5f;
  Submit(request);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.step, StepId{1});
  EXPECT_THAT(plan.starts, ElementsAre(SequenceStart{RowId{0}, SequenceId{1}, 0, 3, {1, 2, 3}, request.sampling}));
}

TEST_F(SchedulerTest, SliceCarriesOnlyTheChangedTailOfTheTable) {
  Make(8);
  Submit(1, 4, 4);
  StepPlan plan = Plan();
  EXPECT_EQ(plan.slices[0].first_changed_block, 0);
  EXPECT_THAT(plan.slices[0].block_tail, ElementsAre(BlockId{0}));
  Commit();
  plan = Plan();  // Position 4 opens a block.
  EXPECT_EQ(plan.slices[0].first_changed_block, 1);
  EXPECT_THAT(plan.slices[0].block_tail, ElementsAre(BlockId{1}));
  Commit();
  plan = Plan();  // Position 5 does not.
  EXPECT_EQ(plan.slices[0].first_changed_block, 2);
  EXPECT_THAT(plan.slices[0].block_tail, IsEmpty());
}

TEST_F(SchedulerTest, LongPromptIsComputedInChunks) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(8, options);
  Submit(1, 10, 2);
  EXPECT_EQ(Step(), "0:0+4");
  EXPECT_THAT(output_.emissions, IsEmpty());
  EXPECT_EQ(Step(), "0:4+4");
  EXPECT_EQ(Step(), "0:8+2*");
  EXPECT_EQ(Step(), "0:10+1*");
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerTest, RunningSequencesTakeFromTheBudgetFirst) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 8;
  Make(16, options);
  Submit(1, 5, 4);
  EXPECT_EQ(Step(), "0:0+5*");
  Submit(2, 20, 4);
  EXPECT_EQ(Step(), "0:5+1* 1:0+7");
  EXPECT_EQ(Step(), "0:6+1* 1:7+7");
  EXPECT_EQ(Step(), "0:7+1* 1:14+6*");
}

TEST_F(SchedulerTest, ChunkLeavesOneTokenOfTheBudgetToEveryoneAfterIt) {
  SchedulerOptions options = Options();
  options.policy = SchedulingPolicy::kPriority;
  options.max_tokens_per_step = 4;
  Make(16, options);
  Submit(1, 3, 8, /*priority=*/1);
  EXPECT_EQ(Step(), "0:0+3*");
  Submit(2, 12, 1, /*priority=*/0);
  EXPECT_EQ(Step(), "0:3+1* 1:0+3");
  EXPECT_EQ(Step(), "1:3+3 0:4+1*");  // The urgent one is served first now, and leaves one token.
}

TEST_F(SchedulerTest, AShortPromptPassesALongOne) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 64;
  Make(100, options);
  Submit(1, 200, 2);
  EXPECT_EQ(Step(), "0:0+64") << "nobody is behind: it has all";
  Submit(2, 10, 2);
  EXPECT_EQ(Step(), "0:64+54 1:0+10*") << "half is left, and what the short one does not need comes back";
  EXPECT_EQ(Step(), "0:118+63 1:10+1*");
}

TEST_F(SchedulerTest, LongPromptsShareTheBudget) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 64;
  Make(200, options);
  for (int i = 1; i <= 4; ++i) Submit(i, 200, 2);
  EXPECT_EQ(Step(), "0:0+32 1:0+16 2:0+16") << "chunks of fewer than 16 tokens are not worth it";
}

// A step of n tokens takes n us.
StepLimit Limit(double max_step_us, double max_prompt_step_us) {
  return {.us_per_token = 1, .max_step_us = max_step_us, .max_prompt_step_us = max_prompt_step_us};
}

TEST_F(SchedulerTest, AStepLimitHoldsBackPromptsButNoDecode) {
  Make(400);
  for (int i = 1; i <= 40; ++i) Submit(i, 2, 50);
  Step();
  scheduler_->SetStepLimit(Limit(8, 1000));
  Submit(41, 100, 2);
  const StepPlan plan = Plan();
  EXPECT_EQ(plan.slices.size(), 41);
  EXPECT_EQ(plan.num_tokens(), 40 + StepLimit::kMinPromptTokens);
  Commit();
  scheduler_->SetStepLimit(Limit(90, 1000));
  EXPECT_EQ(Plan().num_tokens(), 40 + 34) << "68 tokens are left, which need two steps of at most 50";
}

TEST_F(SchedulerTest, WhileNothingDecodesPromptsHaveTheLongerLimit) {
  Make(400);
  scheduler_->SetStepLimit(Limit(40, 120));
  Submit(1, 200, 2);
  EXPECT_EQ(Step(), "0:0+120");
  Submit(2, 100, 2);
  EXPECT_EQ(Step(), "0:120+80* 1:0+40");
  EXPECT_EQ(Step(), "0:200+1* 1:40+33") << "the first request decodes";
}

TEST_F(SchedulerTest, AStepLimitWeighsDecodesAgainstAllPrompts) {
  Make(400);
  for (int i = 1; i <= 10; ++i) Submit(i, 2, 50);
  Step();
  StepLimit limit = Limit(1000, 1000);
  limit.fixed_us = 30;
  scheduler_->SetStepLimit(limit);
  Submit(11, 150, 2);
  StepDemand demand{.num_decodes = 10, .num_prompts = 1};
  demand.uncomputed_tokens = demand.prompt_tokens = 150;
  const int alone = limit.MaxTokens(demand);
  EXPECT_EQ(Plan().num_tokens(), alone);
  Commit();
  for (int i = 12; i <= 15; ++i) Submit(i, 150, 2);
  demand.num_prompts = 5;
  demand.uncomputed_tokens += 4 * 150;
  EXPECT_GT(Plan().num_tokens(), alone) << "requests that wait count as well";
}

TEST_F(SchedulerTest, RequestWaitsWhenTheBudgetIsSpent) {
  SchedulerOptions options = Options();
  options.max_tokens_per_step = 4;
  Make(16, options);
  Submit(1, 8, 1);
  Submit(2, 2, 1);
  EXPECT_EQ(Step(), "0:0+4");
  EXPECT_EQ(Step(), "0:4+4*");
  EXPECT_EQ(Step(), "0:0+2*");
}

TEST_F(SchedulerTest, RequestWaitsWhenAllRowsAreTaken) {
  SchedulerOptions options = Options();
  options.max_sequences = 2;
  Make(16, options);
  Submit(1, 1, 2);
  Submit(2, 1, 3);
  Submit(3, 1, 2);
  EXPECT_EQ(Step(), "0:0+1* 1:0+1*");
  EXPECT_EQ(Step(), "0:1+1* 1:1+1*");
  EXPECT_EQ(Step(), "1:2+1* 0:0+1*");  // Row 0 is free again and goes to request 3.
}

TEST_F(SchedulerTest, LowestFreeRowIsTaken) {
  Make(16);
  for (int id = 1; id <= 4; ++id) Submit(id, 1, 8);
  Step();
  scheduler_->Cancel(RequestId{3});
  scheduler_->Cancel(RequestId{2});
  Submit(5, 1, 8);
  EXPECT_EQ(Step(), "0:1+1* 3:1+1* 1:0+1*");
}

TEST_F(SchedulerTest, StopTokenIsTheLastOneEmitted) {
  model_.stop_percent = 30;
  Make(16);
  Request request = MakeRequest(4, 3, 40);
  request.stop_token_ids = {ShadowModel::kStopToken};
  Submit(request);
  RunToTheEnd();
  EXPECT_EQ(Emitted(4), Solo(4));
  EXPECT_LT(Emitted(4).size(), 40u);
  EXPECT_EQ(Emitted(4).back(), ShadowModel::kStopToken);
  EXPECT_THAT(output_.finished, ElementsAre(Finished{RequestId{4}, 0, FinishReason::kStopToken, true}));
}

TEST_F(SchedulerTest, PriorityPolicyServesSmallerFirstAndTiesInOrderOfSubmission) {
  SchedulerOptions options = Options();
  options.policy = SchedulingPolicy::kPriority;
  options.max_sequences = 1;
  Make(16, options);
  Submit(1, 1, 1, /*priority=*/5);
  Submit(2, 2, 1, /*priority=*/-1);
  Submit(3, 3, 1, /*priority=*/5);
  Submit(4, 4, 1, /*priority=*/-1);
  EXPECT_EQ(Step(), "0:0+2*");
  EXPECT_EQ(Step(), "0:0+4*");
  EXPECT_EQ(Step(), "0:0+1*");
  EXPECT_EQ(Step(), "0:0+3*");
}

TEST_F(SchedulerTest, FcfsPolicyIgnoresPriorities) {
  SchedulerOptions options = Options();
  options.max_sequences = 1;
  Make(16, options);
  Submit(1, 1, 1, /*priority=*/5);
  Submit(2, 2, 1, /*priority=*/-1);
  EXPECT_EQ(Step(), "0:0+1*");
  EXPECT_EQ(Step(), "0:0+2*");
}

TEST_F(SchedulerTest, CancelledRequestEmitsNothingMore) {
  Make(16);
  Submit(1, 5, 8);
  Submit(2, 5, 2);
  Step();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(Step(), "1:5+1*");
  EXPECT_THAT(output_.finished, ElementsAre(Finished{RequestId{2}, 0, FinishReason::kLength, true}));
  EXPECT_EQ(Emitted(1).size(), 1u);
  EXPECT_EQ(blocks_->counts().used, 0);
}

TEST_F(SchedulerTest, CancelBeforeTheCommitDropsTheResult) {
  Make(16);
  Submit(1, 5, 8);
  Plan();
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(Commit(), StepOutput());
}

TEST_F(SchedulerTest, WaitingRequestCanBeCancelled) {
  Make(16);
  Submit(1, 5, 8);
  EXPECT_TRUE(scheduler_->Cancel(RequestId{1}));
  EXPECT_EQ(Step(), "");
}

TEST_F(SchedulerTest, OnlyAKnownRequestCanBeCancelled) {
  Make(16);
  EXPECT_FALSE(scheduler_->Cancel(RequestId{1}));
  Submit(1, 5, 1);
  Step();
  EXPECT_FALSE(scheduler_->Cancel(RequestId{1}));
}

TEST_F(SchedulerTest, PromptLogprobsComeOncePerPositionAcrossChunks) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(16, options);
  Request request = MakeRequest(1, 6, 2);
  request.sampling.num_prompt_logprobs = 0;
  Submit(request);
  const std::vector<ScoredToken> expected = SoloRun(model_, request).prompt_logprobs;
  Step();
  EXPECT_THAT(output_.prompt_logprobs,
              ElementsAre(PromptLogprobs{RequestId{1}, 1, {expected.begin(), expected.begin() + 4}}));
  Step();
  EXPECT_THAT(output_.prompt_logprobs, ElementsAre(PromptLogprobs{RequestId{1}, 5, {expected[4]}}));
  Step();
  EXPECT_THAT(output_.prompt_logprobs, IsEmpty());
}

TEST_F(SchedulerTest, KnownIdIsRefused) {
  Make(16);
  Submit(1, 5, 8);
  EXPECT_EQ(scheduler_->Submit(MakeRequest(1, 5, 8)).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(SchedulerTest, FullQueueRefusesAndChangesNothing) {
  SchedulerOptions options = Options();
  options.max_waiting_requests = 2;
  Make(16, options);
  Submit(1, 1, 1);
  Submit(2, 1, 1);
  const absl::Status status = scheduler_->Submit(MakeRequest(3, 1, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("the worker has a queue of 2 requests (max_waiting_requests), and it is full"));
  EXPECT_EQ(scheduler_->counts().waiting, 2);
  EXPECT_FALSE(scheduler_->Cancel(RequestId{3}));
  Step();
  Submit(3, 1, 1);
}

TEST_F(SchedulerTest, CountsTellWhoWaitsAndWhoRuns) {
  SchedulerOptions options = Options();
  options.max_sequences = 1;
  Make(16, options);
  Submit(1, 5, 2);
  Submit(2, 5, 2);
  Step();
  EXPECT_EQ(scheduler_->counts().running, 1);
  EXPECT_EQ(scheduler_->counts().waiting, 1);
  EXPECT_EQ(scheduler_->counts().scheduled_tokens, 5);
  EXPECT_EQ(scheduler_->counts().recomputed_tokens, 0);
}

TEST_F(SchedulerTest, ResultThatDoesNotAnswerThePlanIsToldFromOneThatDoes) {
  Make(16);
  EXPECT_THAT(scheduler_->CheckResult({StepId{1}, {}}).message(), HasSubstr("no plan is in flight"));
  Submit(1, 5, 2);
  Plan();
  SliceResult sampled;
  sampled.sampled = true;
  SliceResult scored = sampled;
  scored.prompt_logprobs.resize(1);
  EXPECT_EQ(scheduler_->CheckResult({StepId{1}, {sampled}}), absl::OkStatus());
  EXPECT_THAT(scheduler_->CheckResult({StepId{2}, {sampled}}).message(), HasSubstr("step 1 is due"));
  EXPECT_THAT(scheduler_->CheckResult({StepId{1}, {}}).message(), HasSubstr("has 1 slices, its result has 0"));
  EXPECT_THAT(scheduler_->CheckResult({StepId{1}, {SliceResult()}}).message(), HasSubstr("samples 1 tokens"));
  EXPECT_THAT(scheduler_->CheckResult({StepId{1}, {scored}}).message(), HasSubstr("0 prompt logprobs"));
}

}  // namespace
}  // namespace quire
