// SPDX-License-Identifier: Apache-2.0

#include "bench/contiguous_block_manager.h"

#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/sim/shadow_model.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};

TEST(ReservedSlotsTest, AreThoseOfThePaper) {
  EXPECT_EQ(ReservedSlots(Reservation::kMax, 100, 25, 2048), 2048);
  EXPECT_EQ(ReservedSlots(Reservation::kPowerOfTwo, 100, 25, 2048), 132);
  EXPECT_EQ(ReservedSlots(Reservation::kPowerOfTwo, 100, 32, 2048), 132);
  EXPECT_EQ(ReservedSlots(Reservation::kPowerOfTwo, 100, 1500, 2048), 2048);
  EXPECT_EQ(ReservedSlots(Reservation::kOracle, 100, 25, 2048), 124);
}

// There are 10 slots, and step 1 has begun.
class ContiguousBlockManagerTest : public ::testing::Test {
 protected:
  ContiguousBlockManagerTest() { blocks_.BeginStep(StepId{1}); }

  bool Allocate(SequenceId sequence, int first_written, int num_tokens) {
    return blocks_.Allocate(sequence, first_written, num_tokens, &copies_);
  }

  ContiguousBlockManager blocks_{10};
  std::vector<BlockCopy> copies_;
};

TEST_F(ContiguousBlockManagerTest, SequencesTakeTheirRunsInTheOrderOfReserve) {
  ASSERT_TRUE(blocks_.Reserve(4, 1));
  ASSERT_TRUE(blocks_.Reserve(3, 1));
  ASSERT_TRUE(Allocate(kA, 0, 2));
  ASSERT_TRUE(Allocate(kB, 0, 1));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}, BlockId{1}));
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{4}));
  EXPECT_EQ(blocks_.num_reserved(), 7);
  EXPECT_EQ(blocks_.num_reserved(kA), 4);
}

TEST_F(ContiguousBlockManagerTest, NothingIsAllocatedBeyondTheRun) {
  EXPECT_FALSE(Allocate(kA, 0, 1));
  ASSERT_TRUE(blocks_.Reserve(4, 1));
  EXPECT_FALSE(Allocate(kA, 0, 5));
  ASSERT_TRUE(Allocate(kA, 0, 4));
  EXPECT_FALSE(Allocate(kA, 4, 5));
}

TEST_F(ContiguousBlockManagerTest, GapsBetweenRunsAreLost) {
  ASSERT_TRUE(blocks_.Reserve(4, 1));
  ASSERT_TRUE(blocks_.Reserve(2, 1));
  ASSERT_TRUE(Allocate(kA, 0, 1));
  ASSERT_TRUE(Allocate(kB, 0, 1));
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.num_reserved(), 2);
  EXPECT_EQ(blocks_.largest_gap(), 4);
  EXPECT_FALSE(blocks_.Reserve(5, 1));
  blocks_.Free(kB);
  EXPECT_EQ(blocks_.largest_gap(), 10);
}

TEST_F(ContiguousBlockManagerTest, ReserveIsAllOrNothing) {
  EXPECT_FALSE(blocks_.Reserve(4, 3));
  EXPECT_EQ(blocks_.num_reserved(), 0);
  EXPECT_TRUE(blocks_.Reserve(5, 2));
}

TEST_F(ContiguousBlockManagerTest, ForkCopiesAllThatItsParentHas) {
  ASSERT_TRUE(blocks_.Reserve(5, 2));
  ASSERT_TRUE(Allocate(kA, 0, 2));
  blocks_.Fork(kA, kB, 2);
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{5}, BlockId{6}));
  EXPECT_THAT(copies_, IsEmpty());
  blocks_.BeginStep(StepId{2});
  ASSERT_TRUE(Allocate(kB, 2, 3));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{BlockId{0}, BlockId{5}}, BlockCopy{BlockId{1}, BlockId{6}}));
}

TEST_F(ContiguousBlockManagerTest, SourceOfACopyIsNobodyElsesUntilItIsCommitted) {
  ASSERT_TRUE(blocks_.Reserve(5, 2));
  ASSERT_TRUE(Allocate(kA, 0, 2));
  blocks_.Fork(kA, kB, 2);
  blocks_.BeginStep(StepId{2});
  ASSERT_TRUE(Allocate(kB, 2, 3));
  blocks_.Free(kA);
  blocks_.Free(kB);
  EXPECT_EQ(blocks_.num_reserved(), 5);
  blocks_.OnStepCommitted(StepId{1});
  EXPECT_EQ(blocks_.num_reserved(), 5);
  blocks_.OnStepCommitted(StepId{2});
  EXPECT_EQ(blocks_.num_reserved(), 0);
}

Request MakeRequest(uint64_t id) {
  Request request;
  request.id = RequestId{id};
  for (TokenId token = 1; token <= static_cast<TokenId>(4 + id); ++token) request.prompt.push_back(token);
  request.max_tokens = 6 + static_cast<int>(id) % 3;
  request.sampling.seed = id;
  if (id % 3 == 1) request.num_samples = 3;
  if (id % 3 == 2) request.beam = BeamParams{.width = 3, .num_return = 3};
  return request;
}

// The worker checks every read. Memory is so small that the runs of ended sequences are used again.
TEST(ContiguousSchedulingTest, RequestsGenerateWhatTheyWouldAlone) {
  constexpr int kNumSlots = 150;
  const ShadowModel model;
  ContiguousBlockManager blocks(kNumSlots);
  SchedulerOptions options;
  options.max_sequences = 16;
  options.watermark = 0;
  options.max_chunk_tokens = 3;
  Scheduler scheduler(options, &blocks);
  ShadowWorker worker(model, kNumSlots, /*block_size=*/1, options.max_sequences);
  constexpr uint64_t kNumRequests = 20;
  uint64_t num_submitted = 0;
  std::map<std::pair<RequestId, int>, std::vector<TokenId>> outputs;
  while (true) {
    for (; num_submitted < kNumRequests; ++num_submitted) {
      Request request = MakeRequest(num_submitted + 1);
      const int num_slots =
          ReservedSlots(Reservation::kOracle, static_cast<int>(request.prompt.size()), request.max_tokens, 64);
      if (!blocks.Reserve(num_slots, num_submitted % 3 == 2 ? 1 : 3)) break;
      ASSERT_EQ(scheduler.Submit(std::move(request)), absl::OkStatus());
    }
    const StepPlan plan = scheduler.Plan();
    if (plan.empty()) break;
    const absl::StatusOr<StepResult> result = worker.Execute(plan);
    ASSERT_EQ(result.status(), absl::OkStatus());
    for (const Emission& emission : scheduler.Commit(*result).emissions) {
      outputs[{emission.request, emission.sample_index}].push_back(emission.token.token);
    }
  }
  EXPECT_EQ(blocks.num_reserved(), 0);
  for (uint64_t id = 1; id <= kNumRequests; ++id) {
    const SoloOutput solo = SoloRun(model, MakeRequest(id));
    for (size_t i = 0; i < solo.samples.size(); ++i) {
      EXPECT_EQ((outputs[{RequestId{id}, static_cast<int>(i)}]), solo.samples[i].tokens) << "request " << id;
    }
  }
}

}  // namespace
}  // namespace quire
