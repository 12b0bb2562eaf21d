// SPDX-License-Identifier: Apache-2.0

#include "base/cache_groups.h"

#include <algorithm>
#include <set>

#include "base/num_blocks.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// The sheets that a slice of tokens [first, end) reads or writes, or the repetition of the draw before it, found token
// by token.
std::set<int> SheetsOfSlice(int first, int end, int window, int block_size) {
  std::set<int> sheets;
  for (int query = std::max(first - 1, 0); query < end; ++query) {
    for (int key = 0; key <= query; ++key) {
      if (window == 0 || query - key < window) sheets.insert(key / block_size);
    }
  }
  return sheets;
}

TEST(CacheGroupsTest, OneGroupThatKeepsAllHasABlockForEachSheet) {
  const CacheGroups groups(4);
  EXPECT_EQ(groups.size(), 1);
  EXPECT_EQ(groups.block_size(), 4);
  EXPECT_EQ(groups.FirstSheet(0, 1000), 0);
  for (int n = 0; n < 20; ++n) {
    EXPECT_EQ(groups.NumBlocks(n), NumBlocksFor(n, 4)) << n;
    EXPECT_EQ(groups.NumSharedBlocks(n), n / 4) << n;
  }
}

TEST(CacheGroupsTest, AWindowReachesBackFromTheTokenBeforeTheSlice) {
  const CacheGroup window{.window_tokens = 3};
  EXPECT_EQ(window.FirstNeeded(0), 0);
  EXPECT_EQ(window.FirstNeeded(3), 0);
  EXPECT_EQ(window.FirstNeeded(4), 1);
  EXPECT_EQ((CacheGroup{.window_tokens = 1}.FirstNeeded(7)), 6);
  EXPECT_EQ(CacheGroup{}.FirstNeeded(7), 0);
}

TEST(CacheGroupsTest, EveryGroupCountsWithItsWidth) {
  const CacheGroups groups(16, {CacheGroup{}, CacheGroup{.window_tokens = 128, .blocks_per_sheet = 3}},
                           /*max_slice_tokens=*/2048);
  EXPECT_EQ(groups.MaxLiveSheets(1, 4096), 137);
  EXPECT_EQ(groups.NumBlocks(4096), 256 + 3 * 137);
  EXPECT_EQ(groups.NumBlocks(32), 2 + 3 * 2);
  EXPECT_EQ(groups.NumSharedBlocks(100), 6);
}

TEST(CacheGroupsTest, ALargeWindowDoesNotOverflow) {
  const int most = 2147483647;
  const CacheGroups groups(16, {CacheGroup{.window_tokens = most}}, most);
  EXPECT_EQ(groups.NumBlocks(most), 134217728);
  EXPECT_EQ(groups.NumBlocks(int64_t{2} * most), 268435456);
  EXPECT_EQ(groups.FirstSheet(0, most), 0);
}

// A slice that begins at p finds all that it reads in the sheets from FirstSheet(p) on, and needs the first of them.
TEST(CacheGroupsTest, FirstSheetIsTheFirstOneThatASliceReads) {
  for (const int block_size : {1, 2, 3, 4}) {
    for (int window = 0; window <= 9; ++window) {
      const CacheGroups groups(block_size, {CacheGroup{.window_tokens = window}}, 1);
      for (int first = 0; first < 24; ++first) {
        const std::set<int> sheets = SheetsOfSlice(first, first + 3, window, block_size);
        EXPECT_EQ(groups.FirstSheet(0, first), *sheets.begin()) << block_size << " " << window << " " << first;
      }
    }
  }
}

// The bound holds for every slice, and some slice needs as many sheets unless the sequence ends before.
TEST(CacheGroupsTest, MaxLiveSheetsIsTheLeastBoundOfAllSlices) {
  for (const int block_size : {1, 2, 3, 4}) {
    for (int window = 1; window <= 9; ++window) {
      for (const int max_slice : {1, 2, 5}) {
        const CacheGroups groups(block_size, {CacheGroup{.window_tokens = window}}, max_slice);
        for (const int num_tokens : {1, 5, 11, 40}) {
          int64_t most = 0;
          for (int first = 0; first < num_tokens; ++first) {
            const int end = std::min(num_tokens, first + max_slice);
            most = std::max(most, static_cast<int64_t>(SheetsOfSlice(first, end, window, block_size).size()));
          }
          const int64_t bound = groups.MaxLiveSheets(0, num_tokens);
          EXPECT_GE(bound, most) << block_size << " " << window << " " << max_slice << " " << num_tokens;
          if (num_tokens == 40) {
            EXPECT_EQ(bound, most) << block_size << " " << window << " " << max_slice;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire
