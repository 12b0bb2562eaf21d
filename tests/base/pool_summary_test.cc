// SPDX-License-Identifier: Apache-2.0

#include "base/pool_summary.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(PoolSummaryTest, ItSaysTokensAndHowManyLongSequencesFit) {
  EXPECT_EQ(PoolSummary(2050, CacheGroups(16), 131072),
            "2050 blocks of 16 tokens (32800 tokens, or 8 sequences of 4096 tokens)");
  EXPECT_EQ(PoolSummary(5, CacheGroups(16), 40), "5 blocks of 16 tokens (80 tokens, or 1 sequence of 40 tokens)")
      << "a sequence does not share the rest of its last block";
  EXPECT_EQ(PoolSummary(1, CacheGroups(16), 4096), "1 block of 16 tokens (16 tokens, or 0 sequences of 4096 tokens)");
}

// A sequence takes 256 blocks of group 0, and 2 * 137 of the window.
TEST(PoolSummaryTest, WithWindowsItCountsSequencesOnly) {
  const CacheGroups groups(16, {{}, {.window_tokens = 128, .blocks_per_sheet = 2}}, /*max_slice_tokens=*/2048);
  EXPECT_EQ(PoolSummary(1060, groups, 131072), "1060 blocks of 16 tokens (2 sequences of 4096 tokens)");
}

}  // namespace
}  // namespace quire
