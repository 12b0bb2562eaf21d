// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/block_table.h"

#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;

TEST(BlockTableTest, BlocksAreInTheOrderOfTheTokensAndHaveASlotForEach) {
  BlockPool pool(8);
  BlockTable table(4);
  BlockRef unused = pool.Take();
  table.Append(pool.Take());
  table.Append(pool.Take());
  EXPECT_THAT(table.ids(), ElementsAre(BlockId{1}, BlockId{2}));
  EXPECT_EQ(table.num_slots(), 8);
}

TEST(BlockTableTest, SharedTableHoldsReferencesOfItsOwn) {
  BlockPool pool(2);
  std::optional<BlockTable> parent(4);
  parent->Append(pool.Take());
  BlockTable child = parent->Share(parent->num_blocks());
  EXPECT_EQ(pool.ref_count(BlockId{0}), 2);
  parent.reset();
  EXPECT_EQ(pool.ref_count(BlockId{0}), 1);
  EXPECT_THAT(child.ids(), ElementsAre(BlockId{0}));
}

TEST(BlockTableTest, ReplaceReturnsTheOldReference) {
  BlockPool pool(3);
  BlockTable table(4);
  table.Append(pool.Take());
  table.Append(pool.Take());
  {
    BlockRef old = table.Replace(1, pool.Take());
    EXPECT_EQ(old.id(), BlockId{1});
    EXPECT_EQ(pool.num_free(), 0);
  }
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_THAT(table.ids(), ElementsAre(BlockId{0}, BlockId{2}));
}

}  // namespace
}  // namespace quire
