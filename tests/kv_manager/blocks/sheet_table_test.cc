// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/sheet_table.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> Ids(const SheetTable& table) {
  std::vector<int> ids;
  for (const BlockId block : table.view().blocks) ids.push_back(static_cast<int>(Value(block)));
  return ids;
}

// Sheets 3 to 6 of two blocks each.
class SheetTableTest : public ::testing::Test {
 protected:
  SheetTableTest() {
    table_.BeginAt(3);
    for (int i = 0; i < 8; ++i) table_.Append(pool_.Take());
  }

  BlockPool pool_{10};
  SheetTable table_{2};
};

TEST_F(SheetTableTest, SheetsLeaveAtTheFront) {
  EXPECT_EQ(table_.end(), 7);
  table_.ReleaseBefore(2);
  EXPECT_THAT(Ids(table_), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  table_.ReleaseBefore(4);
  EXPECT_EQ(table_.first(), 4);
  EXPECT_EQ(table_.view().first, 4);
  EXPECT_THAT(Ids(table_), ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_EQ(pool_.num_free(), 4);
  EXPECT_EQ(table_.block(4, 1).id(), BlockId{3});
  table_.Append(pool_.Take());
  table_.Append(pool_.Take());
  table_.ReleaseBefore(7);
  EXPECT_EQ(table_.first(), 7);
  EXPECT_EQ(table_.end(), 8);
  EXPECT_EQ(pool_.num_used(), 2);
  table_.ReleaseBefore(20);
  EXPECT_TRUE(table_.is_empty());
  EXPECT_EQ(pool_.num_used(), 0);
}

TEST_F(SheetTableTest, APartIsSharedUnderItsIndices) {
  table_.ReleaseBefore(4);
  const SheetTable part = table_.Share(4, 6);
  EXPECT_EQ(part.first(), 4);
  EXPECT_EQ(part.end(), 6);
  EXPECT_THAT(Ids(part), ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(pool_.ref_count(BlockId{3}), 2);
  EXPECT_EQ(pool_.ref_count(BlockId{6}), 1);
  EXPECT_THAT(Ids(table_.Share(7, 7)), IsEmpty());
}

TEST_F(SheetTableTest, SheetsAreSharedInFrontOfOthers) {
  SheetTable later(2);
  later.BeginAt(5);
  later.Append(pool_.Take());
  later.Append(pool_.Take());
  later.ShareBefore(table_, 4);
  EXPECT_EQ(later.first(), 4);
  EXPECT_THAT(Ids(later), ElementsAre(2, 3, 8, 9));
  table_.ReleaseBefore(7);
  EXPECT_EQ(pool_.num_used(), 4);
}

TEST_F(SheetTableTest, ABlockIsReplaced) {
  table_.ReleaseBefore(4);
  BlockRef old = table_.Replace(5, 1, pool_.Take());
  EXPECT_EQ(old.id(), BlockId{5});
  EXPECT_THAT(Ids(table_), ElementsAre(2, 3, 4, 1, 6, 7)) << "the block that was freed last is taken first";
}

}  // namespace
}  // namespace quire
