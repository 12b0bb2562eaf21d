// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/fork_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tables = std::vector<std::vector<BlockId>>;

std::vector<BlockId> Table(std::initializer_list<uint32_t> blocks) {
  std::vector<BlockId> table;
  for (const uint32_t block : blocks) table.push_back(BlockId{block});
  return table;
}

ForkNode Node(int parent, std::vector<int> sequences, int first_block, int num_blocks) {
  return {parent, std::move(sequences), first_block, num_blocks};
}

TEST(ForkTreeTest, OneSequenceIsOneNode) {
  EXPECT_THAT(BuildForkTree(Tables{Table({3, 1, 2})}), ElementsAre(Node(-1, {0}, 0, 3)));
}

TEST(ForkTreeTest, WhatForksShareIsTheirParent) {
  EXPECT_THAT(BuildForkTree(Tables{Table({1, 2, 3}), Table({1, 2, 4, 5})}),
              ElementsAre(Node(-1, {0, 1}, 0, 2), Node(0, {0}, 2, 1), Node(0, {1}, 2, 2)));
}

TEST(ForkTreeTest, ForksOfForksAreBelowThem) {
  EXPECT_THAT(BuildForkTree(Tables{Table({1, 2, 3}), Table({1, 5}), Table({1, 2, 4})}),
              ElementsAre(Node(-1, {0, 1, 2}, 0, 1), Node(0, {0, 2}, 1, 1), Node(0, {1}, 1, 1), Node(1, {0}, 2, 1),
                          Node(1, {2}, 2, 1)));
}

TEST(ForkTreeTest, ATableThatEndsWhereOthersGoOnHasANodeOfNoBlocks) {
  EXPECT_THAT(BuildForkTree(Tables{Table({1, 2}), Table({1, 2, 3})}),
              ElementsAre(Node(-1, {0, 1}, 0, 2), Node(0, {0}, 2, 0), Node(0, {1}, 2, 1)));
}

TEST(ForkTreeTest, EqualTablesAreOneNode) {
  EXPECT_THAT(BuildForkTree(Tables{Table({1, 2}), Table({1, 2})}), ElementsAre(Node(-1, {0, 1}, 0, 2)));
}

TEST(ForkTreeTest, TablesWithNothingInCommonAreTreesOfTheirOwn) {
  EXPECT_THAT(BuildForkTree(Tables{Table({1}), Table({2})}), ElementsAre(Node(-1, {0}, 0, 1), Node(-1, {1}, 0, 1)));
}

TEST(ForkTreeTest, EmptyTablesAreInNoNode) {
  EXPECT_THAT(BuildForkTree(Tables{Table({}), Table({7})}), ElementsAre(Node(-1, {1}, 0, 1)));
  EXPECT_THAT(BuildForkTree(Tables()), IsEmpty());
}

}  // namespace
}  // namespace quire
