// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kOther{99};

// A block manager that records what the scheduler tells it about steps.
class RecordingBlocks : public PagedBlockManager {
 public:
  RecordingBlocks() : PagedBlockManager({.num_blocks = 4, .block_size = 4, .has_prefix_cache = false}) {}

  void BeginStep(StepId step) override {
    calls_.push_back(absl::StrCat("begin ", Value(step)));
    PagedBlockManager::BeginStep(step);
  }
  void OnStepCommitted(StepId step) override {
    calls_.push_back(absl::StrCat("committed ", Value(step)));
    PagedBlockManager::OnStepCommitted(step);
  }
  void OnStepsAbandoned() override {
    calls_.push_back("abandoned");
    PagedBlockManager::OnStepsAbandoned();
  }

  std::vector<std::string> TakeCalls() { return std::exchange(calls_, {}); }

 private:
  std::vector<std::string> calls_;
};

// One request of 5 prompt tokens whose blocks a test can share with kOther.
class SchedulerBlocksTest : public ::testing::Test {
 protected:
  SchedulerBlocksTest() {
    Request request;
    request.id = RequestId{1};
    request.prompt = {1, 2, 3, 4, 5};
    request.max_tokens = 4;
    EXPECT_EQ(scheduler_.Submit(request), absl::OkStatus());
  }

  void Commit(const StepPlan& plan) {
    StepResult result;
    result.step = plan.step;
    result.slices.resize(plan.slices.size());
    for (SliceResult& slice : result.slices) slice.sampled = true;
    scheduler_.Commit(std::move(result));
  }

  RecordingBlocks blocks_;
  Scheduler scheduler_{SchedulerOptions(), &blocks_};
};

TEST_F(SchedulerBlocksTest, BlocksHearOfEveryStepBegunAndCommitted) {
  Commit(scheduler_.Plan());
  Commit(scheduler_.Plan());
  EXPECT_THAT(blocks_.TakeCalls(), ElementsAre("begin 1", "committed 1", "begin 2", "committed 2"));
}

TEST_F(SchedulerBlocksTest, EmptyPlanLeavesItsNumberToTheNextOne) {
  scheduler_.Cancel(RequestId{1});
  EXPECT_THAT(scheduler_.Plan().slices, IsEmpty());
  EXPECT_THAT(scheduler_.Plan().slices, IsEmpty());
  EXPECT_THAT(blocks_.TakeCalls(), ElementsAre("begin 1", "begin 1"));
}

TEST_F(SchedulerBlocksTest, BlocksHearThatTheWorkerIsLost) {
  scheduler_.Plan();
  scheduler_.AbandonAll();
  scheduler_.Plan();
  EXPECT_THAT(blocks_.TakeCalls(), ElementsAre("begin 1", "abandoned", "begin 1"));
}

TEST_F(SchedulerBlocksTest, PlanCarriesTheCopyThatAWriteNeeds) {
  const StepPlan prefill = scheduler_.Plan();
  Commit(prefill);
  blocks_.Fork(prefill.starts[0].sequence, kOther, 5);
  const StepPlan decode = scheduler_.Plan();
  EXPECT_THAT(decode.copies, ElementsAre(BlockCopy{BlockId{1}, BlockId{2}}));
  ASSERT_EQ(decode.slices.size(), 1u);
  EXPECT_EQ(decode.slices[0].first_changed_block, 1);
  EXPECT_THAT(decode.slices[0].block_tail, ElementsAre(BlockId{2}));
}

TEST_F(SchedulerBlocksTest, EndsOfACopyAreKeptUntilTheCommit) {
  const StepPlan prefill = scheduler_.Plan();
  Commit(prefill);
  blocks_.Fork(prefill.starts[0].sequence, kOther, 5);
  const StepPlan decode = scheduler_.Plan();
  scheduler_.Cancel(RequestId{1});
  blocks_.Free(kOther);
  EXPECT_EQ(blocks_.num_free_blocks(), 2);
  Commit(decode);
  EXPECT_EQ(blocks_.num_free_blocks(), 4);
}

TEST_F(SchedulerBlocksTest, LastRunningRequestSitsOutAStepRatherThanGiveWay) {
  const StepPlan prefill = scheduler_.Plan();
  Commit(prefill);
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(blocks_.Allocate(kOther, 0, 8, &copies));
  blocks_.Fork(prefill.starts[0].sequence, SequenceId{98}, 5);
  EXPECT_THAT(scheduler_.Plan().slices, IsEmpty());  // No block is left for the copy.
  EXPECT_EQ(scheduler_.counts().running, 1);
  EXPECT_EQ(scheduler_.counts().preemptions, 0);
  blocks_.Free(kOther);
  EXPECT_EQ(scheduler_.Plan().slices.size(), 1u);
}

// Another request has left its tokens in the block that the restored one must write, and the pool has no other block.
TEST(RestoredBlocksTest, ARequestThatCanNeverGoOnBeginsAgain) {
  Request request;
  request.id = RequestId{1};
  request.prompt = {1, 2, 3, 4, 5, 6, 7};
  request.max_tokens = 2;
  const std::string salt;
  const std::vector<TokenId> first = {1, 2, 3, 4};
  const std::vector<TokenId> second = {5, 6, 98, 99};
  PagedBlockManager blocks({.num_blocks = 2, .block_size = 4});
  blocks.Restore({.tables = {{.sequence = SequenceId{5},
                              .blocks = {BlockId{0}, BlockId{1}},
                              .num_stored = 6,
                              .tokens = request.prompt,
                              .salt = salt}},
                  .cached = {{BlockId{0}, std::nullopt, &salt, first}, {BlockId{1}, 0, &salt, second}}});
  Scheduler scheduler(SchedulerOptions(), &blocks);
  RestoredRequest restored;
  restored.request = request;
  restored.samples.resize(1);
  restored.samples[0].sequence = SequenceId{5};
  restored.samples[0].tokens = request.prompt;
  restored.samples[0].num_stored = restored.samples[0].num_computed = 6;
  ASSERT_THAT(scheduler.Restore({restored}), IsEmpty());
  EXPECT_TRUE(scheduler.Plan().empty());
  EXPECT_TRUE(scheduler.RestartStuck());
  const StepPlan plan = scheduler.Plan();
  ASSERT_EQ(plan.slices.size(), 1u);
  EXPECT_EQ(plan.slices[0].first_position, 4) << "the first block is still cached";
  EXPECT_FALSE(scheduler.RestartStuck()) << "a plan is in flight";
}

TEST_F(SchedulerBlocksTest, NothingBeginsAgainWhereNothingRuns) {
  EXPECT_FALSE(scheduler_.RestartStuck());
}

}  // namespace
}  // namespace quire
