// SPDX-License-Identifier: Apache-2.0

// A model whose layers of group 1 see a window of 6 tokens. Its sheets have two blocks.

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};

// The blocks have 4 tokens, slices at most 8, and step 1 has begun. A sequence has at most five live sheets.
class PagedBlockManagerWindowsTest : public ::testing::Test {
 protected:
  PagedBlockManagerWindowsTest() { blocks_.BeginStep(StepId{1}); }
  ~PagedBlockManagerWindowsTest() override { EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus()); }

  bool Allocate(SequenceId sequence, int first_written, int num_tokens) {
    return blocks_.Allocate(sequence, first_written, num_tokens, &copies_);
  }
  std::vector<int> Sheets(SequenceId sequence) const {
    std::vector<int> ids;
    for (const BlockId block : blocks_.Sheets(sequence, 1).blocks) ids.push_back(static_cast<int>(Value(block)));
    return ids;
  }
  int FirstSheet(SequenceId sequence) const { return blocks_.Sheets(sequence, 1).first; }

  PagedBlockManager blocks_{{.num_blocks = 24,
                             .block_size = 4,
                             .groups = {{}, {.window_tokens = 6, .blocks_per_sheet = 2}},
                             .max_slice_tokens = 8,
                             .num_host_blocks = 16}};
  std::vector<BlockCopy> copies_;
};

TEST_F(PagedBlockManagerWindowsTest, ASequenceTakesSheetsForItsNextSliceOnly) {
  EXPECT_EQ(blocks_.NumBlocksNeeded(kA, 0, 32), 8 + 2 * 5);
  ASSERT_TRUE(Allocate(kA, 0, 32));
  EXPECT_EQ(blocks_.counts().used, 8 + 2 * 5);
  EXPECT_EQ(blocks_.Sheets(kA, 1).blocks.size(), 10u);
}

// A slice at 16 may read the tokens from 10 on.
TEST_F(PagedBlockManagerWindowsTest, SheetsThatASliceMayNotReadLeaveWhenItIsPlanned) {
  ASSERT_TRUE(Allocate(kA, 0, 12));
  EXPECT_THAT(Sheets(kA), ElementsAre(3, 4, 5, 6, 7, 8));
  ASSERT_TRUE(Allocate(kA, 12, 13)) << "the tokens from 6 on";
  EXPECT_EQ(FirstSheet(kA), 1);
  EXPECT_EQ(blocks_.NumBlocksNeeded(kA, 16, 17), 1 + 2 - 2);
  ASSERT_TRUE(Allocate(kA, 16, 17));
  EXPECT_EQ(FirstSheet(kA), 2);
  ASSERT_TRUE(Allocate(kA, 17, 18));
  EXPECT_EQ(FirstSheet(kA), 2) << "token 11 is in sheet 2";
  ASSERT_TRUE(Allocate(kA, 18, 19));
  EXPECT_EQ(FirstSheet(kA), 3);
}

TEST_F(PagedBlockManagerWindowsTest, WhatLeavesMakesRoomForTheSameSlice) {
  ASSERT_TRUE(Allocate(kA, 0, 8));
  ASSERT_TRUE(Allocate(kB, 0, 24));
  EXPECT_EQ(blocks_.num_free_blocks(), 24 - (2 + 4) - (6 + 10));
  EXPECT_FALSE(Allocate(kA, 8, 13)) << "six blocks are needed, none leaves";
  EXPECT_EQ(blocks_.NumBlocksNeeded(kA, 10, 13), 2 + 4 - 2);
  EXPECT_FALSE(Allocate(kA, 10, 13));
  EXPECT_EQ(FirstSheet(kA), 0) << "a call that fails releases nothing";
  EXPECT_EQ(blocks_.NumBlocksNeeded(kB, 16, 24), -2) << "two sheets leave, and one comes";
  ASSERT_TRUE(Allocate(kB, 16, 24));
  EXPECT_TRUE(Allocate(kA, 10, 13));
}

TEST_F(PagedBlockManagerWindowsTest, AForkSharesTheWindowAndCopiesItsPartialSheet) {
  ASSERT_TRUE(Allocate(kA, 0, 14));
  blocks_.Fork(kA, kB, 14);
  blocks_.ShareSheets(kA, kB, 14);
  EXPECT_EQ(FirstSheet(kB), 2);
  EXPECT_THAT(Sheets(kB), ElementsAre(8, 9, 10, 11));
  blocks_.BeginStep(StepId{2});
  EXPECT_EQ(blocks_.NumBlocksNeeded(kB, 14, 15), 3);
  ASSERT_TRUE(Allocate(kB, 14, 15));
  EXPECT_THAT(Sheets(kB), ElementsAre(8, 9, 13, 14));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{BlockId{3}, BlockId{12}}, BlockCopy{BlockId{10}, BlockId{13}},
                                   BlockCopy{BlockId{11}, BlockId{14}}));
  ASSERT_TRUE(Allocate(kA, 14, 15)) << "the last owner writes in place";
  EXPECT_EQ(copies_.size(), 3u);
  blocks_.Free(kA);
  blocks_.OnStepCommitted(StepId{2});
  EXPECT_EQ(blocks_.counts().used, 4 + 4);
}

// The parent computes 8 tokens for both.
TEST_F(PagedBlockManagerWindowsTest, ASequenceThatWaitsGetsTheSheetsBeforeItWhenTheyAreComputed) {
  ASSERT_TRUE(Allocate(kA, 0, 12));
  blocks_.Fork(kA, kB, 8);
  ASSERT_TRUE(Allocate(kB, 8, 10));
  EXPECT_EQ(FirstSheet(kB), 2);
  EXPECT_THAT(Sheets(kB), ElementsAre(10, 11));
  ASSERT_TRUE(Allocate(kA, 8, 12));
  blocks_.ShareSheets(kA, kB, 8);
  EXPECT_EQ(FirstSheet(kB), 0);
  EXPECT_THAT(Sheets(kB), ElementsAre(3, 4, 5, 6, 10, 11));
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.counts().used, 3 + 6);
}

TEST_F(PagedBlockManagerWindowsTest, OnlyTheWindowIsSwapped) {
  ASSERT_TRUE(Allocate(kA, 0, 20));
  ASSERT_TRUE(Allocate(kA, 13, 20));
  EXPECT_EQ(FirstSheet(kA), 1);
  std::vector<BlockSwap> swaps;
  const std::vector<SequenceExtent> extents = {{kA, 15}};
  ASSERT_TRUE(blocks_.SwapOut(extents, &swaps));
  EXPECT_EQ(swaps.size(), 4u + 2 * 2) << "tokens 9 to 14 are in two sheets";
  EXPECT_EQ(blocks_.counts().used, 0);
  EXPECT_THAT(Sheets(kA), IsEmpty());
  blocks_.BeginStep(StepId{2});
  swaps.clear();
  const std::vector<SequenceId> sequences = {kA};
  EXPECT_EQ(blocks_.NumBlocksToSwapIn(sequences), 8);
  ASSERT_TRUE(blocks_.SwapIn(sequences, &swaps));
  EXPECT_EQ(swaps.size(), 8u);
  EXPECT_EQ(FirstSheet(kA), 2);
  EXPECT_EQ(Sheets(kA).size(), 4u);
  ASSERT_TRUE(Allocate(kA, 15, 20));
  EXPECT_EQ(Sheets(kA).size(), 6u);
}

TEST_F(PagedBlockManagerWindowsTest, NothingIsCached) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  blocks_.AdoptPrefix(kA, "", tokens, 0);
  ASSERT_TRUE(Allocate(kA, 0, 9));
  EXPECT_FALSE(blocks_.Publish(kA, tokens, 8).has_value());
  EXPECT_EQ(blocks_.FindPrefix("", tokens).num_tokens, 0);
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.counts().free, 24);
}

}  // namespace
}  // namespace quire
