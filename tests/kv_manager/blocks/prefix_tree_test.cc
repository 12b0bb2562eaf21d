// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_tree.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<TokenId>;

constexpr BlockId B(uint32_t number) {
  return BlockId{number};
}

// A pool of 16 blocks of 2 tokens and a tree over it. The tests take, cache and hold the blocks of sequences
// themselves.
class PrefixTreeTest : public ::testing::Test {
 protected:
  ~PrefixTreeTest() override { EXPECT_EQ(Integrity(), absl::OkStatus()); }

  // Computes and caches a sequence of whole blocks in `step`, and returns its blocks.
  std::vector<BlockRef> Compute(const Tokens& tokens, int step, const std::string& salt = "") {
    std::vector<BlockRef> blocks;
    std::optional<BlockId> parent;
    for (size_t i = 0; i < tokens.size(); i += 2) {
      BlockRef block = pool_.Take();
      const BlockId cached = tree_.Insert(salt, parent, absl::MakeConstSpan(tokens).subspan(i, 2), block, StepId(step));
      blocks.push_back(cached == block.id() ? std::move(block) : tree_.Share(cached));
      parent = cached;
    }
    return blocks;
  }

  PrefixTree::Hit Find(const Tokens& tokens, const std::string& salt = "") const {
    return tree_.Find(salt, tokens, static_cast<int>(tokens.size()));
  }

  std::vector<BlockId> EvictAll() {
    std::vector<BlockId> evicted;
    while (std::optional<BlockId> block = tree_.EvictOne()) evicted.push_back(*block);
    return evicted;
  }

  absl::Status Integrity() const {
    absl::Status status = pool_.CheckIntegrity();
    status.Update(tree_.CheckIntegrity());
    return status;
  }

  BlockPool pool_{16};
  PrefixTree tree_{2, &pool_};
};

TEST_F(PrefixTreeTest, ADroppedBlockTakesWhatIsBelowItWhetherHeldOrListed) {
  const std::vector<BlockRef> held = Compute({1, 2, 3, 4, 5, 6}, 1);
  Compute({1, 2, 3, 4, 7, 8}, 2);
  Compute({9, 9}, 3);
  EXPECT_EQ(tree_.EvictOne(), B(3)) << "the blocks that nobody holds are listed now";
  Compute({1, 2, 3, 4, 7, 8}, 4);
  tree_.Drop(held[1].id());
  EXPECT_EQ(tree_.last_evicted().size(), 3u);
  EXPECT_THAT(Find({1, 2, 3, 4, 5, 6}).blocks, ElementsAre(held[0].id()));
  EXPECT_EQ(Integrity(), absl::OkStatus());
  EXPECT_EQ(EvictAll().size(), 1u) << "the block with {9, 9}";
}

TEST_F(PrefixTreeTest, ABlockIsProvedWithItsAncestors) {
  const std::vector<BlockRef> blocks = Compute({1, 2, 3, 4, 5, 6}, 1);
  tree_.Prove(blocks[1].id());
  EXPECT_TRUE(tree_.is_proved(blocks[0].id()));
  EXPECT_TRUE(tree_.is_proved(blocks[1].id()));
  EXPECT_FALSE(tree_.is_proved(blocks[2].id()));
}

TEST_F(PrefixTreeTest, EmptyTreeHitsNothing) {
  const PrefixTree::Hit hit = Find({1, 2, 3});
  EXPECT_THAT(hit.blocks, IsEmpty());
  EXPECT_EQ(hit.partial_block, std::nullopt);
  EXPECT_EQ(hit.num_tokens, 0);
  EXPECT_EQ(tree_.EvictOne(), std::nullopt);
}

TEST_F(PrefixTreeTest, HitIsTheLongestRunOfWholeBlocks) {
  const auto held = Compute({1, 2, 3, 4, 5, 6}, 1);
  const PrefixTree::Hit hit = Find({1, 2, 3, 4, 9, 9});
  EXPECT_THAT(hit.blocks, ElementsAre(B(0), B(1)));
  EXPECT_EQ(hit.partial_block, std::nullopt);
  EXPECT_EQ(hit.num_tokens, 4);
}

TEST_F(PrefixTreeTest, EqualBlocksAfterDifferentPrefixesAreDifferent) {
  const auto a = Compute({1, 2, 7, 7}, 1);
  const auto b = Compute({3, 4, 7, 7}, 1);
  EXPECT_THAT(Find({1, 2, 7, 7}).blocks, ElementsAre(B(0), B(1)));
  EXPECT_THAT(Find({3, 4, 7, 7}).blocks, ElementsAre(B(2), B(3)));
  EXPECT_EQ(Find({7, 7}).num_tokens, 0);
}

TEST_F(PrefixTreeTest, HitMayEndInsideABlock) {
  const auto held = Compute({1, 2, 3, 4}, 1);
  const PrefixTree::Hit hit = Find({1, 2, 3, 9, 9});
  EXPECT_THAT(hit.blocks, ElementsAre(B(0)));
  EXPECT_EQ(hit.partial_block, B(1));
  EXPECT_EQ(hit.num_partial_tokens, 1);
  EXPECT_EQ(hit.num_tokens, 3);
}

TEST_F(PrefixTreeTest, LimitCutsAHitInsideABlock) {
  const auto held = Compute({1, 2, 3, 4}, 1);
  const Tokens tokens = {1, 2, 3, 4};
  const PrefixTree::Hit hit = tree_.Find("", tokens, 3);
  EXPECT_THAT(hit.blocks, ElementsAre(B(0)));
  EXPECT_EQ(hit.partial_block, B(1));
  EXPECT_EQ(hit.num_tokens, 3);
  EXPECT_EQ(tree_.Find("", tokens, 0).num_tokens, 0);
  EXPECT_EQ(tree_.Find("", tokens, 100).num_tokens, 4);
}

TEST(PrefixTreePartialHitTest, PartialBlockIsTheChildThatAgreesLongest) {
  BlockPool pool(200);
  PrefixTree tree(4, &pool);
  std::vector<BlockRef> held;
  for (TokenId a : {1, 5, 3, 2, 4}) {
    for (TokenId b : {3, 1, 5, 2, 4}) {
      for (TokenId c : {2, 5, 1, 4, 3}) {
        held.push_back(pool.Take());
        tree.Insert("", std::nullopt, {a * 10, b * 10, c * 10, 7}, held.back(), StepId{1});
      }
    }
  }
  const auto num_tokens = [&](const Tokens& tokens) { return tree.Find("", tokens, 4).num_partial_tokens; };
  EXPECT_EQ(num_tokens({9, 20, 30, 7}), 0);
  EXPECT_EQ(num_tokens({20, 9, 30, 7}), 1);
  EXPECT_EQ(num_tokens({20, 99, 30, 7}), 1);
  EXPECT_EQ(num_tokens({20, 30, 25, 7}), 2);
  EXPECT_EQ(num_tokens({20, 30, 50, 6}), 3);
  EXPECT_EQ(num_tokens({20, 30, 50, 8}), 3);
  EXPECT_EQ(tree.CheckIntegrity(), absl::OkStatus());
}

TEST_F(PrefixTreeTest, SaltsNeverMeet) {
  const auto held = Compute({1, 2, 3, 4}, 1, "a");
  EXPECT_EQ(Find({1, 2, 3, 4}, "a").num_tokens, 4);
  EXPECT_EQ(Find({1, 2, 3, 4}, "b").num_tokens, 0);
  EXPECT_EQ(Find({1, 2, 3, 4}, "").num_tokens, 0);
  EXPECT_EQ(Find({1, 2, 3, 4}, std::string("a\0", 2)).num_tokens, 0);
  const auto other = Compute({1, 2, 3, 4}, 1, "b");
  EXPECT_EQ(other[0].id(), B(2));
  EXPECT_THAT(Find({1, 2}, "a").blocks, ElementsAre(B(0)));
}

TEST_F(PrefixTreeTest, SecondCopyOfAPrefixIsGivenUpForTheFirst) {
  const auto first = Compute({1, 2, 3, 4}, 1);
  const auto second = Compute({1, 2, 3, 4}, 2);
  EXPECT_EQ(second[0].id(), B(0));
  EXPECT_EQ(second[1].id(), B(1));
  EXPECT_EQ(pool_.num_used(), 2);
  EXPECT_EQ(pool_.num_shared(), 2);
  EXPECT_EQ(tree_.num_blocks(), 2);
}

TEST_F(PrefixTreeTest, CachingABlockTwiceIsTheSameAsOnce) {
  BlockRef block = pool_.Take();
  EXPECT_EQ(tree_.Insert("", std::nullopt, {1, 2}, block, StepId{1}), block.id());
  EXPECT_EQ(tree_.Insert("", std::nullopt, {1, 2}, block, StepId{2}), block.id());
  EXPECT_EQ(tree_.num_blocks(), 1);
  EXPECT_EQ(pool_.ref_count(block.id()), 2);
}

TEST_F(PrefixTreeTest, BlockIsEvictableExactlyWhileNobodyElseHoldsIt) {
  auto held = Compute({1, 2, 3, 4}, 1);
  EXPECT_EQ(tree_.num_evictable(), 0);
  EXPECT_EQ(tree_.EvictOne(), std::nullopt);
  held.pop_back();
  EXPECT_EQ(tree_.num_evictable(), 1);
  BlockRef again = tree_.Share(B(1));
  EXPECT_EQ(tree_.num_evictable(), 0);
  again = BlockRef();
  held.clear();
  EXPECT_EQ(tree_.num_evictable(), 2);
  EXPECT_EQ(pool_.num_free() + tree_.num_evictable() + pool_.num_used(), 16);
  EXPECT_EQ(pool_.num_used(), 0);
}

TEST_F(PrefixTreeTest, HitTellsHowManyOfItsBlocksStopBeingEvictable) {
  auto held = Compute({1, 2, 3, 4, 5, 6}, 1);
  held.resize(1);
  EXPECT_EQ(Find({1, 2, 3, 4}).num_evictable, 1);
  EXPECT_EQ(Find({1, 2, 3, 4, 5}).num_evictable, 2) << "a partial block is held while it is copied";
}

TEST_F(PrefixTreeTest, EvictedBlockIsFreeAndForgotten) {
  Compute({1, 2, 3, 4}, 1);
  EXPECT_EQ(tree_.EvictOne(), B(1));
  EXPECT_EQ(pool_.num_free(), 15);
  EXPECT_FALSE(tree_.Contains(B(1)));
  EXPECT_THAT(Find({1, 2, 3, 4}).blocks, ElementsAre(B(0)));
  EXPECT_EQ(pool_.Take().id(), B(1));
}

TEST_F(PrefixTreeTest, BlocksOfOneStepGoDeepestFirst) {
  Compute({1, 2, 3, 4, 5, 6}, 1);
  Compute({7, 8}, 1);
  EXPECT_THAT(EvictAll(), ElementsAre(B(2), B(1), B(0), B(3)));
  EXPECT_EQ(pool_.num_free(), 16);
}

TEST_F(PrefixTreeTest, BlocksUsedLongAgoGoFirst) {
  Compute({1, 2, 3, 4}, 3);
  Compute({5, 6, 7, 8}, 1);
  Compute({9, 9, 9, 9}, 2);
  EXPECT_THAT(EvictAll(), ElementsAre(B(3), B(2), B(5), B(4), B(1), B(0)));
}

TEST_F(PrefixTreeTest, TouchedPathGoesLate) {
  Compute({1, 2, 3, 4, 5, 6}, 1);
  Compute({7, 8}, 2);
  tree_.Touch(B(1), StepId{3});
  EXPECT_THAT(EvictAll(), ElementsAre(B(2), B(3), B(1), B(0)));
}

TEST_F(PrefixTreeTest, BlockTouchedAfterItWasListedGoesInItsTurn) {
  Compute({1, 2}, 1);
  Compute({3, 4}, 2);
  Compute({5, 6}, 3);
  EXPECT_EQ(tree_.EvictOne(), B(0));
  tree_.Touch(B(1), StepId{4});
  EXPECT_THAT(EvictAll(), ElementsAre(B(2), B(1)));
}

TEST_F(PrefixTreeTest, EarlierTouchChangesNothing) {
  Compute({1, 2}, 5);
  Compute({3, 4}, 4);
  tree_.Touch(B(0), StepId{1});
  EXPECT_THAT(EvictAll(), ElementsAre(B(1), B(0)));
}

TEST_F(PrefixTreeTest, NewChildUsesItsAncestors) {
  auto held = Compute({1, 2}, 1);
  Compute({7, 8}, 2);
  held.push_back(pool_.Take());
  tree_.Insert("", B(0), {3, 4}, held[1], StepId{3});
  held.clear();
  EXPECT_THAT(EvictAll(), ElementsAre(B(1), B(2), B(0)));
}

TEST_F(PrefixTreeTest, BlockHeldAgainIsPassedOverUntilItIsReleased) {
  Compute({1, 2}, 1);
  Compute({3, 4}, 2);
  Compute({5, 6}, 3);
  BlockRef held = tree_.Share(B(1));
  EXPECT_EQ(tree_.EvictOne(), B(0));
  EXPECT_EQ(tree_.EvictOne(), B(2));
  EXPECT_EQ(tree_.EvictOne(), std::nullopt);
  held = BlockRef();
  EXPECT_EQ(tree_.EvictOne(), B(1));
}

TEST_F(PrefixTreeTest, BlockHeldBelowAnEvictedOneLeavesTheTree) {
  auto held = Compute({1, 2, 3, 4, 5, 6}, 1);
  const BlockRef copied = tree_.Share(B(1));
  held.clear();
  EXPECT_EQ(tree_.num_evictable(), 2);
  EXPECT_EQ(tree_.EvictOne(), B(2));
  EXPECT_EQ(tree_.EvictOne(), B(0));
  EXPECT_EQ(tree_.num_blocks(), 0);
  EXPECT_FALSE(tree_.Contains(B(1)));
  EXPECT_EQ(pool_.num_used(), 1);
  EXPECT_EQ(pool_.ref_count(B(1)), 1);
}

TEST_F(PrefixTreeTest, BlockCachedAnewIsNotTakenForWhatItHeldBefore) {
  Compute({8, 8}, 1);
  Compute({1, 2, 3, 4}, 2);
  EXPECT_EQ(tree_.EvictOne(), B(0)) << "the others are listed";
  std::optional<BlockRef> copied = tree_.Share(B(2));
  EXPECT_EQ(tree_.EvictOne(), B(1));
  EXPECT_FALSE(tree_.Contains(B(2)));
  copied.reset();
  Compute({5, 5}, 2);
  ASSERT_TRUE(tree_.Contains(B(2)));
  Compute({6, 6, 7, 7}, 2);
  EXPECT_THAT(EvictAll(), ElementsAre(B(0), B(2), B(1)));
}

TEST_F(PrefixTreeTest, SaltIsForgottenWithItsLastBlock) {
  for (int i = 0; i < 100; ++i) {
    Compute({1, 2}, i, std::to_string(i));
    EXPECT_EQ(EvictAll().size(), 1);
  }
  EXPECT_EQ(Find({1, 2}, "99").num_tokens, 0);
  EXPECT_EQ(tree_.num_blocks(), 0);
}

TEST_F(PrefixTreeTest, ClearForgetsBlocksInUseToo) {
  const auto held = Compute({1, 2, 3, 4}, 9);
  Compute({5, 6}, 9);
  tree_.Clear();
  EXPECT_EQ(tree_.num_blocks(), 0);
  EXPECT_EQ(Find({1, 2}).num_tokens, 0);
  EXPECT_EQ(pool_.num_used(), 2);
  EXPECT_EQ(pool_.num_free(), 14);
  Compute({1, 2, 3, 4}, 1);
  Compute({5, 6}, 2);
  EXPECT_EQ(EvictAll().size(), 3) << "steps may start again";
}

TEST_F(PrefixTreeTest, HitsOfALongChatAreExactThroughManyBranches) {
  std::vector<BlockRef> held = Compute({1, 2}, 1);
  for (TokenId i = 0; i < 10; ++i) {
    held.push_back(pool_.Take());
    tree_.Insert("", B(0), {i * 7 % 10, i}, held.back(), StepId{1});
  }
  for (TokenId i = 0; i < 10; ++i) {
    const PrefixTree::Hit hit = Find({1, 2, i * 7 % 10, i});
    EXPECT_THAT(hit.blocks, ElementsAre(B(0), held[i + 1].id()));
  }
}

using PrefixTreeDeathTest = PrefixTreeTest;

TEST_F(PrefixTreeDeathTest, ParentUnderAnotherSaltIsABug) {
  const auto held = Compute({1, 2}, 1, "a");
  const BlockRef block = pool_.Take();
  EXPECT_DEATH(tree_.Insert("b", B(0), {3, 4}, block, StepId{1}), "cached under another salt");
}

TEST_F(PrefixTreeDeathTest, ParentThatIsNotCachedIsABug) {
  const BlockRef parent = pool_.Take();
  const BlockRef block = pool_.Take();
  EXPECT_DEATH(tree_.Insert("", B(0), {3, 4}, block, StepId{1}), "block 0 is not cached");
}

TEST_F(PrefixTreeDeathTest, BlockWithTwoContentsIsABug) {
  const auto held = Compute({1, 2}, 1);
  EXPECT_DEATH(tree_.Insert("", std::nullopt, {3, 4}, held[0], StepId{1}), "cached elsewhere");
}

}  // namespace
}  // namespace quire
