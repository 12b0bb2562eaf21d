// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_trie.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> Children(const BlockTrie& trie, uint32_t parent) {
  std::vector<uint32_t> children;
  trie.AppendChildren(parent, &children);
  return children;
}

TEST(BlockTrieTest, ChildrenAreOrderedByTheirTokens) {
  BlockTrie trie(4, 2);
  const uint32_t root = trie.AddRoot();
  trie.AddChild(root, 0, {5, 5});
  trie.AddChild(root, 1, {3, 9});
  trie.AddChild(root, 2, {5, 1});
  trie.AddChild(1, 3, {1, 1});
  EXPECT_THAT(Children(trie, root), ElementsAre(1, 2, 0));
  EXPECT_THAT(Children(trie, 1), ElementsAre(3));
  EXPECT_EQ(trie.Parent(3), 1u);
  EXPECT_THAT(trie.TokensOf(2), ElementsAre(5, 1));
}

TEST(BlockTrieTest, FoundChildAgreesLongest) {
  BlockTrie trie(3, 3);
  const uint32_t root = trie.AddRoot();
  trie.AddChild(root, 0, {1, 2, 3});
  trie.AddChild(root, 1, {1, 5, 3});
  trie.AddChild(root, 2, {4, 4, 4});
  const auto find = [&](std::vector<TokenId> tokens) { return trie.FindChild(root, tokens); };
  EXPECT_EQ(find({1, 5, 3}).node, 1u);
  EXPECT_EQ(find({1, 5, 3}).num_tokens, 3);
  EXPECT_EQ(find({1, 2, 9}).node, 0u);
  EXPECT_EQ(find({1, 2, 9}).num_tokens, 2);
  EXPECT_EQ(find({4}).node, 2u);
  EXPECT_EQ(find({4}).num_tokens, 1);
  EXPECT_EQ(find({2, 2, 2}).node, BlockTrie::kNone);
  EXPECT_EQ(find({}).node, BlockTrie::kNone);
}

TEST(BlockTrieTest, SearchAmongManySiblingsIsShort) {
  // If the tree of the siblings were a list, this would compare 10^10 pairs.
  const int num_blocks = 100'000;
  BlockTrie trie(num_blocks, 2);
  const uint32_t root = trie.AddRoot();
  for (int i = 0; i < num_blocks; ++i) trie.AddChild(root, i, {i, i});
  ASSERT_EQ(trie.CheckChildren(root), absl::OkStatus());
  for (int i = 0; i < num_blocks; ++i) {
    ASSERT_EQ(trie.FindChild(root, {i, i + 1}).node, static_cast<uint32_t>(i));
  }
  for (int i = num_blocks - 1; i >= 0; --i) trie.RemoveLeaf(i);
  EXPECT_FALSE(trie.HasChildren(root));
}

TEST(BlockTrieTest, RemovedBlockMayGoElsewhere) {
  BlockTrie trie(2, 1);
  const uint32_t a = trie.AddRoot();
  const uint32_t b = trie.AddRoot();
  trie.AddChild(a, 0, {1});
  trie.RemoveLeaf(0);
  EXPECT_EQ(trie.FindChild(a, {1}).node, BlockTrie::kNone);
  trie.AddChild(b, 0, {2});
  EXPECT_THAT(Children(trie, a), ElementsAre());
  EXPECT_THAT(Children(trie, b), ElementsAre(0));
}

TEST(BlockTrieTest, RemovedRootIsUsedAgain) {
  BlockTrie trie(2, 1);
  const uint32_t a = trie.AddRoot();
  const uint32_t b = trie.AddRoot();
  EXPECT_NE(a, b);
  trie.RemoveRoot(a);
  EXPECT_EQ(trie.AddRoot(), a);
}

TEST(BlockTrieTest, EveryOrderOfChangesKeepsTheTreap) {
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  do {
    BlockTrie trie(6, 1);
    const uint32_t root = trie.AddRoot();
    for (int i : order) trie.AddChild(root, i, {i});
    for (int i : order) {
      ASSERT_EQ(trie.CheckChildren(root), absl::OkStatus());
      trie.RemoveLeaf((i + 3) % 6);
    }
    ASSERT_FALSE(trie.HasChildren(root));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(BlockTrieDeathTest, BlockInTwoPlacesIsABug) {
  BlockTrie trie(2, 1);
  const uint32_t root = trie.AddRoot();
  trie.AddChild(root, 0, {1});
  EXPECT_DEATH(trie.AddChild(root, 0, {2}), "has a parent");
}

}  // namespace
}  // namespace quire
