// SPDX-License-Identifier: Apache-2.0

// Tests the views for reports and the audits of the block manager, with planted mistakes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "tests/kv_manager/blocks/block_manager_peer.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = CountDifference::Kind;

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};

std::vector<TokenId> Tokens(int first, int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

// A pool of 8 blocks of 4 tokens, half of which may be pinned, and 4 host blocks. Step 1 has begun.
class PagedBlockManagerReportsTest : public ::testing::Test {
 protected:
  PagedBlockManagerReportsTest() { blocks_.BeginStep(StepId{1}); }
  ~PagedBlockManagerReportsTest() override { EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus()); }

  // The sequence computes these tokens.
  void Compute(SequenceId sequence, const std::vector<TokenId>& tokens) {
    const int num_tokens = static_cast<int>(tokens.size());
    blocks_.AdoptPrefix(sequence, "", tokens, 0);
    ASSERT_TRUE(blocks_.Allocate(sequence, 0, num_tokens, &copies_));
    blocks_.Publish(sequence, tokens, num_tokens);
  }

  // The states of all blocks as digits.
  std::string States() const {
    std::string states;
    blocks_.CopyStates(&states);
    for (char& state : states) state = static_cast<char>(state + '0');
    return states;
  }

  PagedBlockManager blocks_{{.num_blocks = 8, .block_size = 4, .num_host_blocks = 4, .max_pinned_blocks = 4}};
  std::vector<BlockCopy> copies_;
};

TEST_F(PagedBlockManagerReportsTest, EveryBlockHasAState) {
  EXPECT_EQ(States(), "11111111");
  Compute(kA, Tokens(1, 10));
  EXPECT_EQ(States(), "33311111");
  blocks_.Fork(kA, kB, 10);
  EXPECT_EQ(States(), "44411111");
  blocks_.Free(kB);
  blocks_.Free(kA);
  EXPECT_EQ(States(), "22111111") << "the part of a block is not cached";
  ASSERT_TRUE(blocks_.Pin("", Tokens(1, 5), 100).ok());
  EXPECT_EQ(States(), "52111111");
}

TEST_F(PagedBlockManagerReportsTest, HoldersAreCounted) {
  Compute(kA, Tokens(1, 10));
  blocks_.Fork(kA, kB, 10);
  ASSERT_TRUE(blocks_.Pin("", Tokens(1, 5), 100).ok());
  const BlockHolders first = blocks_.HoldersOf(BlockId{0});
  EXPECT_EQ(first.state, BlockState::kPinned);
  EXPECT_EQ(first.num_references, 4) << "two sequences, the cache, a pin";
  EXPECT_EQ(first.num_pins, 1);
  EXPECT_TRUE(first.is_cached);
  EXPECT_EQ(first.depth, 1);
  EXPECT_EQ(blocks_.HoldersOf(BlockId{1}).depth, 2);
  const BlockHolders partial = blocks_.HoldersOf(BlockId{2});
  EXPECT_EQ(partial.state, BlockState::kShared);
  EXPECT_FALSE(partial.is_cached);
  ASSERT_TRUE(blocks_.Allocate(kB, 10, 11, &copies_));
  EXPECT_EQ(blocks_.HoldersOf(BlockId{2}).num_copies, 1);
  EXPECT_EQ(blocks_.HoldersOf(BlockId{7}).state, BlockState::kFree);
}

TEST_F(PagedBlockManagerReportsTest, AgeCountsStepsSinceTheLastUse) {
  Compute(kA, Tokens(1, 8));
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.HoldersOf(BlockId{0}).age_steps, 0u);
  for (int step = 2; step <= 5; ++step) blocks_.BeginStep(StepId{static_cast<uint64_t>(step)});
  EXPECT_EQ(blocks_.HoldersOf(BlockId{0}).age_steps, 4u);
  blocks_.AdoptPrefix(kB, "", Tokens(1, 5), 4);
  EXPECT_EQ(blocks_.HoldersOf(BlockId{0}).age_steps, 0u);
  EXPECT_EQ(blocks_.HoldersOf(BlockId{1}).age_steps, 4u);
}

TEST_F(PagedBlockManagerReportsTest, ASwappedSequenceHasATableOfHostBlocks) {
  Compute(kA, Tokens(1, 8));
  std::vector<BlockSwap> swaps;
  EXPECT_TRUE(blocks_.HostTable(kA).empty());
  ASSERT_TRUE(blocks_.SwapOut({{{kA, 8}}}, &swaps));
  EXPECT_THAT(blocks_.HostTable(kA), ElementsAre(BlockId{0}, BlockId{1}));
  EXPECT_TRUE(blocks_.Table(kA).empty());
}

TEST_F(PagedBlockManagerReportsTest, OnlyWhatNobodyHoldsIsEvictedOnDemand) {
  Compute(kA, Tokens(1, 8));
  Compute(kB, Tokens(100, 12));
  blocks_.Free(kB);
  EXPECT_EQ(blocks_.num_cached_blocks(), 5);
  EXPECT_EQ(blocks_.EvictCached(2), 2);
  EXPECT_EQ(blocks_.EvictCached(10), 1);
  EXPECT_EQ(blocks_.num_cached_blocks(), 2);
  EXPECT_EQ(blocks_.counts().evictable, 0);
}

TEST_F(PagedBlockManagerReportsTest, ACleanAuditFindsNothingAndCountsAll) {
  Compute(kA, Tokens(1, 10));
  blocks_.Fork(kA, kB, 10);
  const BlockAudit audit = blocks_.Audit();
  EXPECT_TRUE(audit.is_clean());
  EXPECT_EQ(audit.num_blocks, 12);
  EXPECT_EQ(audit.num_references, 8) << "two tables of three, and two cached blocks";
  EXPECT_TRUE(blocks_.Repair().is_clean());
}

TEST_F(PagedBlockManagerReportsTest, EveryPlantedMistakeIsFoundAndRepaired) {
  Compute(kA, Tokens(1, 10));
  BlockManagerPeer::AddOwners(&blocks_, BlockId{1}, +2);  // Nobody would ever free this block.
  BlockManagerPeer::AddOwners(&blocks_, BlockId{2}, -1);  // This block would be handed out twice.
  BlockManagerPeer::AddOwners(&blocks_, BlockId{6}, +1);  // This block is free.
  BlockManagerPeer::AddCopies(&blocks_, BlockId{0}, +1);
  BlockManagerPeer::AddHostOwners(&blocks_, BlockId{3}, +1);
  const BlockAudit audit = blocks_.Audit();
  EXPECT_THAT(audit.differences, ElementsAre(CountDifference{Kind::kCopies, BlockId{0}, 1, 0},
                                             CountDifference{Kind::kReferences, BlockId{1}, 4, 2},
                                             CountDifference{Kind::kReferences, BlockId{2}, 0, 1},
                                             CountDifference{Kind::kReferences, BlockId{6}, 1, 0},
                                             CountDifference{Kind::kHostReferences, BlockId{3}, 1, 0}));
  EXPECT_EQ(audit.num_differences, 5);
  EXPECT_THAT(std::string(audit.contradiction.message()), HasSubstr("block 6 is on the free list with 1 references"));

  EXPECT_EQ(blocks_.Repair().num_differences, 5);
  EXPECT_TRUE(blocks_.Audit().is_clean());
  EXPECT_EQ(States(), "33311111");
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerReportsTest, ABlockWhoseCacheWasForgottenIsCachedAndEvictableAgain) {
  Compute(kA, Tokens(1, 8));
  BlockManagerPeer::ForgetThatItIsCached(&blocks_, BlockId{1});
  EXPECT_THAT(blocks_.Audit().differences, ElementsAre(CountDifference{Kind::kReferences, BlockId{1}, 1, 2},
                                                       CountDifference{Kind::kCached, BlockId{1}, 0, 1}));
  blocks_.Repair();
  EXPECT_TRUE(blocks_.Audit().is_clean());
  blocks_.Free(kA);
  EXPECT_EQ(blocks_.EvictCached(8), 2);
}

}  // namespace
}  // namespace quire
