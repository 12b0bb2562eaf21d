// SPDX-License-Identifier: Apache-2.0

#include "bench/memory_waste.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/conversations.h"

namespace quire {
namespace {

// Serves 800 requests of chat lengths in a pool that holds a hundred of them.
class MemoryWasteTest : public ::testing::Test {
 protected:
  SlotUse Contiguous(Reservation reservation) const {
    return MeasureWaste(requests_, {.reservation = reservation, .pool_tokens = kPoolTokens});
  }
  SlotUse BlocksOf(int block_size) const {
    return MeasureWaste(requests_, {.reservation = {}, .block_size = block_size, .pool_tokens = kPoolTokens});
  }

  static constexpr int kPoolTokens = 1 << 15;
  const std::vector<RequestLengths> requests_ = [] {
    std::vector<RequestLengths> requests = DrawLogNormal(161, 338, 800, /*seed=*/1);
    std::erase_if(requests, [](const RequestLengths& request) { return request.prompt + request.output > 2048; });
    return requests;
  }();
};

TEST_F(MemoryWasteTest, BlocksOf16HoldTokensInMoreThan96PercentOfAllocatedMemory) {
  EXPECT_GT(BlocksOf(16).live_of_allocated(), 0.96);
}

TEST_F(MemoryWasteTest, SharesAddUpToOne) {
  for (const SlotUse& use : {BlocksOf(16), Contiguous(Reservation::kPowerOfTwo)}) {
    EXPECT_NEAR(use.live + use.later + use.never + use.outside, 1, 1e-9);
    EXPECT_GE(use.later, 0);
    EXPECT_GE(use.never, 0);
  }
}

TEST_F(MemoryWasteTest, EveryStepFromReservationToPagesHoldsMoreTokens) {
  const double max = Contiguous(Reservation::kMax).live;
  const double power_of_two = Contiguous(Reservation::kPowerOfTwo).live;
  const double oracle = Contiguous(Reservation::kOracle).live;
  const double pages = BlocksOf(16).live;
  EXPECT_LT(max, power_of_two);
  EXPECT_LT(power_of_two, oracle);
  EXPECT_LT(oracle, pages);
}

TEST_F(MemoryWasteTest, SmallerBlocksWasteLess) {
  double last = 0;
  for (const int block_size : {64, 32, 16, 8}) {
    const double live = BlocksOf(block_size).live_of_allocated();
    EXPECT_GT(live, last) << block_size;
    last = live;
  }
}

TEST_F(MemoryWasteTest, OracleReservesNothingInVain) {
  EXPECT_EQ(Contiguous(Reservation::kOracle).never, 0);
}

TEST(SharingTest, MoreSequencesShareMore) {
  const std::vector<RequestLengths> requests = DrawLogNormal(161, 338, 20, /*seed=*/1);
  double last = 0;
  for (const int num : {2, 4, 6}) {
    const double saved = MeasureSharing(requests, Sharing::kBeams, num);
    EXPECT_GT(saved, last);
    EXPECT_LT(saved, 1 - 1.0 / num);
    EXPECT_GT(saved, MeasureSharing(requests, Sharing::kSamples, num));
    last = saved;
  }
}

// Two samples of 32 prompt tokens and one token each hold the same two blocks.
TEST(SharingTest, SamplesShareTheWholeBlocksOfTheirPrompt) {
  EXPECT_DOUBLE_EQ(MeasureSharing({{0, 32, 1}}, Sharing::kSamples, 2), 0.5);
}

TEST(SharingTest, OneSampleSharesNothing) {
  EXPECT_DOUBLE_EQ(MeasureSharing({{0, 32, 9}}, Sharing::kSamples, 1), 0);
}

}  // namespace
}  // namespace quire
