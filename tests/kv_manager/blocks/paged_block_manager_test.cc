// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/paged_block_manager.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};
constexpr SequenceId kC{3};

// The blocks have 4 tokens, and step 1 has begun.
class PagedBlockManagerTest : public ::testing::Test {
 protected:
  explicit PagedBlockManagerTest(int num_blocks = 8) : blocks_(num_blocks, 4) { blocks_.BeginStep(StepId{1}); }
  ~PagedBlockManagerTest() override { EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus()); }

  bool Allocate(SequenceId sequence, int first_written, int num_tokens) {
    return blocks_.Allocate(sequence, first_written, num_tokens, &copies_);
  }

  // The child shares all blocks of the parent, and the last one is partial.
  void Fork(SequenceId parent, SequenceId child) {
    const int num_slots = static_cast<int>(blocks_.Table(parent).size()) * blocks_.block_size();
    blocks_.Fork(parent, child, std::max(0, num_slots - 1));
  }

  PagedBlockManager blocks_;
  std::vector<BlockCopy> copies_;
};

TEST_F(PagedBlockManagerTest, SequenceHoldsJustTheBlocksOfItsTokens) {
  ASSERT_TRUE(Allocate(kA, 0, 5));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}, BlockId{1}));
  ASSERT_TRUE(Allocate(kA, 5, 8));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}, BlockId{1}));
  ASSERT_TRUE(Allocate(kA, 8, 9));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}, BlockId{1}, BlockId{2}));
  EXPECT_THAT(copies_, IsEmpty());
}

TEST_F(PagedBlockManagerTest, FailedAllocationChangesNothing) {
  ASSERT_TRUE(Allocate(kA, 0, 20));
  EXPECT_EQ(blocks_.NumBlocksNeeded(kB, 0, 13), 4);
  EXPECT_FALSE(Allocate(kB, 0, 13));
  EXPECT_EQ(blocks_.num_free_blocks(), 3);
  EXPECT_THAT(blocks_.Table(kB), IsEmpty());
  EXPECT_TRUE(Allocate(kB, 0, 12));
  EXPECT_EQ(blocks_.num_free_blocks(), 0);
}

TEST_F(PagedBlockManagerTest, FreedBlocksServeTheNextSequenceAtOnce) {
  ASSERT_TRUE(Allocate(kA, 0, 32));
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.counts().free, 8);
  EXPECT_TRUE(Allocate(kB, 0, 32));
}

TEST_F(PagedBlockManagerTest, EmptySlotsAreCountedInEveryTable) {
  ASSERT_TRUE(Allocate(kA, 0, 5));
  EXPECT_EQ(blocks_.counts().table_entries, 2);
  EXPECT_EQ(blocks_.counts().live_tokens, 5);
  blocks_.Fork(kA, kB, 5);
  EXPECT_EQ(blocks_.counts().table_entries, 4) << "a shared block is an entry of both tables";
  EXPECT_EQ(blocks_.counts().live_tokens, 10);
  ASSERT_TRUE(Allocate(kB, 5, 6));
  EXPECT_EQ(blocks_.counts().used, 3) << "one block is shared, and one copied";
  EXPECT_EQ(blocks_.counts().live_tokens, 11);
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.counts().table_entries, 2);
  EXPECT_EQ(blocks_.counts().live_tokens, 6);
}

TEST_F(PagedBlockManagerTest, FreeingAnUnknownSequenceDoesNothing) {
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerTest, ForkSharesEveryBlock) {
  ASSERT_TRUE(Allocate(kA, 0, 6));
  Fork(kA, kB);
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{0}, BlockId{1}));
  EXPECT_EQ(blocks_.counts().used, 2);
  EXPECT_EQ(blocks_.counts().shared, 2);
}

TEST_F(PagedBlockManagerTest, ForkOfAnEmptySequenceIsEmpty) {
  Fork(kA, kB);
  EXPECT_THAT(blocks_.Table(kB), IsEmpty());
}

TEST_F(PagedBlockManagerTest, FirstWriterCopiesThePartialLastBlockOnly) {
  ASSERT_TRUE(Allocate(kA, 0, 6));
  Fork(kA, kB);
  EXPECT_EQ(blocks_.NumBlocksNeeded(kA, 6, 7), 1);
  ASSERT_TRUE(Allocate(kA, 6, 7));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{BlockId{1}, BlockId{2}}));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}, BlockId{2}));
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{0}, BlockId{1}));
}

TEST_F(PagedBlockManagerTest, LastOwnerWritesInPlaceEvenWhileTheCopyIsInFlight) {
  ASSERT_TRUE(Allocate(kA, 0, 6));
  Fork(kA, kB);
  ASSERT_TRUE(Allocate(kA, 6, 7));
  EXPECT_EQ(blocks_.NumBlocksNeeded(kB, 6, 7), 0);
  ASSERT_TRUE(Allocate(kB, 6, 7));
  EXPECT_EQ(copies_.size(), 1u);
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{0}, BlockId{1}));
  ASSERT_TRUE(Allocate(kA, 7, 8));  // The destination of a copy does not look shared either.
  EXPECT_EQ(copies_.size(), 1u);
}

TEST_F(PagedBlockManagerTest, ThreeOwnersMakeTwoCopies) {
  ASSERT_TRUE(Allocate(kA, 0, 2));
  Fork(kA, kB);
  Fork(kA, kC);
  ASSERT_TRUE(Allocate(kB, 2, 3));
  ASSERT_TRUE(Allocate(kC, 2, 3));
  ASSERT_TRUE(Allocate(kA, 2, 3));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{BlockId{0}, BlockId{1}}, BlockCopy{BlockId{0}, BlockId{2}}));
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}));
}

TEST_F(PagedBlockManagerTest, FullSharedBlockIsNotCopied) {
  ASSERT_TRUE(Allocate(kA, 0, 8));
  Fork(kA, kB);
  ASSERT_TRUE(Allocate(kB, 8, 9));
  EXPECT_THAT(copies_, IsEmpty());
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{0}, BlockId{1}, BlockId{2}));
}

TEST_F(PagedBlockManagerTest, SharedBlockWithoutTokensToKeepIsReplacedWithoutACopy) {
  ASSERT_TRUE(Allocate(kA, 0, 12));  // There is room for 12 tokens, and 6 of them are stored so far.
  Fork(kA, kB);
  EXPECT_EQ(blocks_.NumBlocksNeeded(kB, 6, 12), 2);
  ASSERT_TRUE(Allocate(kB, 6, 12));
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{BlockId{1}, BlockId{3}}));
  EXPECT_THAT(blocks_.Table(kB), ElementsAre(BlockId{0}, BlockId{3}, BlockId{4}));
}

TEST_F(PagedBlockManagerTest, BothEndsOfACopyStayUntilItsStepIsCommitted) {
  ASSERT_TRUE(Allocate(kA, 0, 2));
  Fork(kA, kB);
  ASSERT_TRUE(Allocate(kB, 2, 3));
  blocks_.Free(kA);
  blocks_.Free(kB);
  EXPECT_EQ(blocks_.num_free_blocks(), 6);
  blocks_.BeginStep(StepId{2});
  EXPECT_EQ(blocks_.num_free_blocks(), 6);
  blocks_.OnStepCommitted(StepId{1});
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerTest, CommitReleasesTheCopiesOfItsOwnStepOnly) {
  ASSERT_TRUE(Allocate(kA, 0, 2));
  Fork(kA, kB);
  blocks_.BeginStep(StepId{2});
  ASSERT_TRUE(Allocate(kB, 2, 3));
  blocks_.Free(kA);
  blocks_.Free(kB);
  blocks_.OnStepCommitted(StepId{1});
  EXPECT_EQ(blocks_.num_free_blocks(), 6);
  blocks_.OnStepCommitted(StepId{2});
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerTest, StepBegunAgainVoidsItsCopies) {
  ASSERT_TRUE(Allocate(kA, 0, 2));
  Fork(kA, kB);
  ASSERT_TRUE(Allocate(kB, 2, 3));
  blocks_.Free(kA);
  blocks_.Free(kB);
  blocks_.BeginStep(StepId{1});
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerTest, AbandonedStepsReleaseTheirCopies) {
  ASSERT_TRUE(Allocate(kA, 0, 2));
  Fork(kA, kB);
  ASSERT_TRUE(Allocate(kB, 2, 3));
  blocks_.Free(kB);
  blocks_.OnStepsAbandoned();
  EXPECT_EQ(blocks_.num_free_blocks(), 7);
  EXPECT_THAT(blocks_.Table(kA), ElementsAre(BlockId{0}));
}

TEST_F(PagedBlockManagerTest, CopyOnWriteNeedsAFreeBlock) {
  ASSERT_TRUE(Allocate(kA, 0, 30));
  Fork(kA, kB);
  EXPECT_FALSE(Allocate(kB, 30, 31));
  EXPECT_EQ(blocks_.counts().shared, 8);
  EXPECT_THAT(copies_, IsEmpty());
  blocks_.Free(kA);
  EXPECT_TRUE(Allocate(kB, 30, 31));
  EXPECT_THAT(copies_, IsEmpty());
}

TEST_F(PagedBlockManagerTest, WhatWasGivenUpFirstIsEvictedFirst) {
  const std::vector<TokenId> first = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const std::vector<TokenId> second = {11, 12, 13, 14, 15, 16, 17, 18, 19};
  const auto cache = [&](SequenceId sequence, const std::vector<TokenId>& tokens) {
    blocks_.AdoptPrefix(sequence, "", tokens, 0);
    ASSERT_TRUE(Allocate(sequence, 0, 8));
    blocks_.Publish(sequence, tokens, 8);
  };
  cache(kA, first);
  blocks_.BeginStep(StepId{2});
  cache(kB, second);
  blocks_.Free(kB);
  blocks_.BeginStep(StepId{3});
  blocks_.Free(kA);
  ASSERT_TRUE(Allocate(kC, 0, 24));
  EXPECT_EQ(blocks_.num_evictions(), 2);
  EXPECT_EQ(blocks_.FindPrefix("", first).num_tokens, 8);
  EXPECT_EQ(blocks_.FindPrefix("", second).num_tokens, 0);
}

TEST_F(PagedBlockManagerTest, FreeAndUsedMakeTheWholePool) {
  ASSERT_TRUE(Allocate(kA, 0, 9));
  Fork(kA, kB);
  const BlockCounts counts = blocks_.counts();
  EXPECT_EQ(counts.total, 8);
  EXPECT_EQ(counts.used, 3);
  EXPECT_EQ(counts.free + counts.used, counts.total);
}

// The tests of Uncache have a prefix of 12 tokens: two sequences share its first block, and one computes the rest.
class UncacheTest : public PagedBlockManagerTest {
 protected:
  // Computes all tokens of a new sequence, as far as they are not cached, and publishes them.
  void Compute(SequenceId sequence, const std::vector<TokenId>& tokens) {
    const int num_cached = blocks_.FindPrefix("", tokens).num_block_tokens;
    blocks_.AdoptPrefix(sequence, "", tokens, num_cached);
    ASSERT_TRUE(Allocate(sequence, num_cached, static_cast<int>(tokens.size())));
    blocks_.Publish(sequence, tokens, static_cast<int>(tokens.size()));
  }
  // How many of the tokens are cached in whole blocks.
  int NumCached(std::vector<TokenId> tokens) {
    tokens.push_back(0);
    return blocks_.FindPrefix("", tokens).num_block_tokens;
  }

  const std::vector<TokenId> sound_ = {1, 2, 3, 4};
  const std::vector<TokenId> poisoned_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
};

TEST_F(UncacheTest, WhatNobodyHasProvedLeavesTheCacheAndTheRestStays) {
  Compute(kA, sound_);
  blocks_.Prove(kA, 4);
  Compute(kB, poisoned_);
  ASSERT_EQ(NumCached(poisoned_), 12);
  blocks_.Free(kB);
  blocks_.Uncache("", poisoned_);
  EXPECT_EQ(NumCached(poisoned_), 4);
}

TEST_F(UncacheTest, ASequenceThatSharesTheBlocksKeepsThemAndPublishesNothingMore) {
  Compute(kA, poisoned_);
  std::vector<TokenId> longer = poisoned_;
  for (TokenId token = 13; token <= 17; ++token) longer.push_back(token);
  Compute(kB, longer);
  blocks_.Free(kA);
  blocks_.Uncache("", poisoned_);
  EXPECT_EQ(NumCached(longer), 0);
  EXPECT_EQ(blocks_.Table(kB).size(), 5u);
  blocks_.Publish(kB, longer, 16);
  blocks_.Free(kB);
  EXPECT_EQ(NumCached(longer), 0);
  EXPECT_EQ(blocks_.counts().free, 8);
}

TEST_F(UncacheTest, ASequenceInTheHostTierPublishesNothingMore) {
  PagedBlockManager blocks({.num_blocks = 8, .block_size = 4, .num_host_blocks = 8});
  blocks.BeginStep(StepId{1});
  blocks.AdoptPrefix(kA, "", poisoned_, 0);
  ASSERT_TRUE(blocks.Allocate(kA, 0, 12, &copies_));
  blocks.Publish(kA, poisoned_, 12);
  std::vector<BlockSwap> swaps;
  const SequenceExtent extent{kA, 12};
  ASSERT_TRUE(blocks.SwapOut(absl::MakeConstSpan(&extent, 1), &swaps));
  blocks.Uncache("", poisoned_);
  blocks.OnStepCommitted(StepId{1});
  blocks.BeginStep(StepId{2});
  ASSERT_TRUE(blocks.SwapIn(absl::MakeConstSpan(&kA, 1), &swaps));
  blocks.Publish(kA, poisoned_, 12);
  EXPECT_EQ(blocks.num_cached_blocks(), 0);
}

TEST_F(UncacheTest, AnotherSaltIsNotTouched) {
  Compute(kA, poisoned_);
  blocks_.Uncache("another", poisoned_);
  EXPECT_EQ(NumCached(poisoned_), 12);
}

}  // namespace
}  // namespace quire
