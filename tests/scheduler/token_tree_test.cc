// SPDX-License-Identifier: Apache-2.0

#include "scheduler/token_tree.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using NodeId = TokenTree::NodeId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TokenId> Ids(const TokenTree& tree, NodeId node, int skip = 0) {
  std::vector<TokenId> ids;
  for (const TokenLogprob& token : tree.Tokens(node, skip)) ids.push_back(token.token);
  return ids;
}

// Extends `parent` in a separate step.
NodeId Add(TokenTree* tree, NodeId parent, TokenId token) {
  const NodeId node = tree->Extend(parent, {token, -1.0f});
  tree->EndStep();
  return node;
}

TEST(TokenTreeTest, AListIsThePathFromTheRoot) {
  TokenTree tree;
  const NodeId one = Add(&tree, TokenTree::kRoot, 1);
  const NodeId two = Add(&tree, one, 2);
  const NodeId three = Add(&tree, one, 3);
  EXPECT_THAT(Ids(tree, TokenTree::kRoot), IsEmpty());
  EXPECT_THAT(Ids(tree, two), ElementsAre(1, 2));
  EXPECT_THAT(Ids(tree, three), ElementsAre(1, 3));
  EXPECT_THAT(Ids(tree, three, 1), ElementsAre(3));
  EXPECT_THAT(Ids(tree, three, 2), IsEmpty());
  EXPECT_EQ(tree.length(three), 2);
  EXPECT_EQ(tree.last(three), (TokenLogprob{3, -1.0f}));
}

TEST(TokenTreeTest, ReleasedListsMakeRoomButNotWhatOthersShare) {
  TokenTree tree;
  const NodeId one = Add(&tree, TokenTree::kRoot, 1);
  const NodeId two = Add(&tree, one, 2);
  const NodeId three = Add(&tree, two, 3);
  tree.Release(one);
  tree.Release(two);
  EXPECT_THAT(Ids(tree, three), ElementsAre(1, 2, 3));

  const NodeId four = Add(&tree, one, 4);
  tree.Release(three);  // This drops 2 as well, but not 1.
  EXPECT_THAT(Ids(tree, four), ElementsAre(1, 4));
  const NodeId five = Add(&tree, four, 5);
  const NodeId six = Add(&tree, five, 6);
  EXPECT_THAT((std::vector<NodeId>{five, six}), testing::UnorderedElementsAre(two, three)) << "nodes are not reused";
  EXPECT_THAT(Ids(tree, six), ElementsAre(1, 4, 5, 6));
}

TEST(TokenTreeTest, EqualListsOfOneStepAreOne) {
  TokenTree tree;
  const NodeId first = tree.Extend(TokenTree::kRoot, {1, -1.0f});
  EXPECT_EQ(tree.Extend(TokenTree::kRoot, {1, -1.0f}), first);
  tree.Release(first);  // The other holder remains.
  EXPECT_NE(tree.Extend(TokenTree::kRoot, {2, -1.0f}), first);
  EXPECT_THAT(Ids(tree, first), ElementsAre(1));
  tree.EndStep();
  EXPECT_NE(tree.Extend(TokenTree::kRoot, {1, -1.0f}), first);
}

TEST(TokenTreeTest, AListDroppedInTheSameStepIsNotFoundAgain) {
  TokenTree tree;
  const NodeId dropped = tree.Extend(TokenTree::kRoot, {1, -1.0f});
  tree.Release(dropped);
  EXPECT_EQ(tree.Extend(TokenTree::kRoot, {2, -1.0f}), dropped) << "nodes are not reused";
  EXPECT_NE(tree.Extend(TokenTree::kRoot, {1, -1.0f}), dropped);
}

TEST(TokenTreeTest, ListsShareWhatLiesBeforeTheFirstForkOrEnd) {
  TokenTree tree;
  const NodeId one = Add(&tree, TokenTree::kRoot, 1);
  const NodeId two = Add(&tree, one, 2);
  tree.Release(one);
  EXPECT_EQ(tree.CommonBeginning(two, TokenTree::kRoot), two) << "a list alone";

  const NodeId three = Add(&tree, two, 3);
  EXPECT_EQ(tree.CommonBeginning(three, TokenTree::kRoot), two) << "one list ends within the other";
  tree.Release(two);
  EXPECT_EQ(tree.CommonBeginning(three, TokenTree::kRoot), three);

  const NodeId four = Add(&tree, two, 4);
  const NodeId five = Add(&tree, one, 5);
  EXPECT_EQ(tree.CommonBeginning(four, TokenTree::kRoot), one) << "two forks";
  tree.Release(five);
  EXPECT_EQ(tree.CommonBeginning(four, one), two);
  EXPECT_EQ(tree.CommonBeginning(four, two), two) << "nothing more than is known already";
  tree.Release(four);
  EXPECT_EQ(tree.CommonBeginning(three, two), three);
}

}  // namespace
}  // namespace quire
