// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_index.h"

#include <vector>

#include <gtest/gtest.h>

#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

const std::vector<TokenId> kPrompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};

PrefixHash HashOfBlocks(int num_blocks) {
  PrefixHash hash = HashOfSalt("");
  for (int i = 0; i < num_blocks; ++i) hash = ExtendPrefixHash(hash, absl::MakeConstSpan(kPrompt).subspan(4 * i, 4));
  return hash;
}

int NumTokens(const PrefixIndex& index, absl::string_view salt = "") {
  PromptHashes hashes(salt, kPrompt);
  return index.NumTokens(&hashes);
}

TEST(PrefixIndexTest, FindsTheLongestPrefixInWholeBlocks) {
  PrefixIndex index(4);
  EXPECT_EQ(NumTokens(index), 0);
  index.Set(BlockId{7}, HashOfBlocks(2));
  EXPECT_EQ(NumTokens(index), 0) << "the first block is missing";
  index.Set(BlockId{3}, HashOfBlocks(1));
  EXPECT_EQ(NumTokens(index), 8);
  EXPECT_EQ(NumTokens(index, "other salt"), 0);
}

TEST(PrefixIndexTest, ABlockThatHoldsSomethingElseIsNoHitAnyMore) {
  PrefixIndex index(4);
  index.Set(BlockId{3}, HashOfBlocks(1));
  index.Set(BlockId{3}, PrefixHash{12345});
  EXPECT_EQ(NumTokens(index), 0);
}

TEST(PrefixIndexTest, WhatIsPlacedIsExpectedUntilItHasEnded) {
  PrefixIndex index(4);
  PromptHashes hashes("", kPrompt);
  index.Expect(RequestId{1}, &hashes);
  index.Expect(RequestId{2}, &hashes);
  index.ClearBlocks();
  EXPECT_EQ(NumTokens(index), 8);
  index.Forget(RequestId{1});
  EXPECT_EQ(NumTokens(index), 8);
  index.Forget(RequestId{2});
  index.Forget(RequestId{2});
  EXPECT_EQ(NumTokens(index), 0);
}

TEST(PrefixIndexTest, KnowsWhatTheBlockManagerCachesAndEvicts) {
  PrefixIndex index(4);
  PagedBlockManager blocks({.num_blocks = 3, .block_size = 4, .index = &index});
  std::vector<BlockCopy> copies;
  blocks.BeginStep(StepId{1});
  blocks.AdoptPrefix(SequenceId{1}, "", kPrompt, 0);
  ASSERT_TRUE(blocks.Allocate(SequenceId{1}, 0, 9, &copies));
  blocks.Publish(SequenceId{1}, kPrompt, 8);
  EXPECT_EQ(NumTokens(index), 8);
  blocks.Free(SequenceId{1});
  EXPECT_EQ(NumTokens(index), 8);
  ASSERT_TRUE(blocks.Allocate(SequenceId{2}, 0, 8, &copies));
  EXPECT_EQ(NumTokens(index), 4) << "the deeper block was evicted";
  blocks.Free(SequenceId{2});
  blocks.OnStepsAbandoned();
  EXPECT_EQ(NumTokens(index), 0);
}

}  // namespace
}  // namespace quire
