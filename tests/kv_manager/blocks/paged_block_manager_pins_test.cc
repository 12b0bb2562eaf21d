// SPDX-License-Identifier: Apache-2.0

// Tests what pins in the block manager hold, what they do not prevent, and when they end.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

constexpr SequenceId kA{1};
constexpr SequenceId kB{2};

// A pool of 8 blocks of 4 tokens, half of which may be pinned. Step 1 has begun.
class PagedBlockManagerPinsTest : public ::testing::Test {
 protected:
  PagedBlockManagerPinsTest() { blocks_.BeginStep(StepId{1}); }
  ~PagedBlockManagerPinsTest() override { EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus()); }

  static std::vector<TokenId> Tokens(int first, int count) {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(first + i);
    return tokens;
  }

  // A sequence computes the tokens and ends.
  void Cache(SequenceId sequence, const std::vector<TokenId>& tokens) {
    const int num_tokens = static_cast<int>(tokens.size());
    blocks_.AdoptPrefix(sequence, "", tokens, 0);
    ASSERT_TRUE(blocks_.Allocate(sequence, 0, num_tokens, &copies_));
    blocks_.Publish(sequence, tokens, num_tokens);
    blocks_.Free(sequence);
  }

  PagedBlockManager blocks_{{.num_blocks = 8, .block_size = 4, .max_pinned_blocks = 4}};
  std::vector<BlockCopy> copies_;
};

TEST_F(PagedBlockManagerPinsTest, PinnedBlocksAreUsedAndNotEvicted) {
  Cache(kA, Tokens(1, 10));
  EXPECT_EQ(blocks_.counts().evictable, 2);
  EXPECT_EQ(blocks_.Pin("", Tokens(1, 10), 100).value(), 8);
  EXPECT_EQ(blocks_.counts().pinned, 2);
  EXPECT_EQ(blocks_.counts().used, 2);
  EXPECT_EQ(blocks_.num_free_blocks(), 6);
  EXPECT_FALSE(blocks_.Allocate(kB, 0, 28, &copies_));
  EXPECT_TRUE(blocks_.Allocate(kB, 0, 24, &copies_));
  EXPECT_EQ(blocks_.FindPrefix("", Tokens(1, 10)).num_tokens, 8);
}

TEST_F(PagedBlockManagerPinsTest, SequencesShareWhatIsPinned) {
  Cache(kA, Tokens(1, 8));
  ASSERT_TRUE(blocks_.Pin("", Tokens(1, 8), 100).ok());
  blocks_.AdoptPrefix(kB, "", Tokens(1, 10), 8);
  EXPECT_EQ(blocks_.Table(kB).size(), 2u);
  EXPECT_EQ(blocks_.CheckIntegrity(), absl::OkStatus());
  EXPECT_TRUE(blocks_.Unpin("", Tokens(1, 8)));
  EXPECT_EQ(blocks_.counts().used, 2);
  EXPECT_EQ(blocks_.counts().pinned, 0);
}

TEST_F(PagedBlockManagerPinsTest, PinsEndAtTheirTimeOrWhenTheyAreToGiveWay) {
  Cache(kA, Tokens(1, 4));
  Cache(kB, Tokens(50, 4));
  ASSERT_TRUE(blocks_.Pin("", Tokens(1, 4), 100).ok());
  ASSERT_TRUE(blocks_.Pin("", Tokens(50, 4), 200).ok());
  EXPECT_EQ(blocks_.next_pin_expiry_us(), 100);
  blocks_.ExpirePins(100);
  EXPECT_EQ(blocks_.counts().pinned, 1);
  EXPECT_TRUE(blocks_.EndOnePin());
  EXPECT_FALSE(blocks_.EndOnePin());
  EXPECT_EQ(blocks_.num_free_blocks(), 8);
}

TEST_F(PagedBlockManagerPinsTest, OnlyTheGivenShareOfThePoolIsPinned) {
  Cache(kA, Tokens(1, 20));
  const absl::StatusOr<int> pinned = blocks_.Pin("", Tokens(1, 20), 100);
  EXPECT_EQ(pinned.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pinned.status().message(), "the pin adds 5 blocks to 0 pinned ones, the limit is 4");
  EXPECT_EQ(blocks_.Pin("", Tokens(1, 16), 100).value(), 16);
}

TEST_F(PagedBlockManagerPinsTest, ALostWorkerTakesThePinsWithIt) {
  Cache(kA, Tokens(1, 8));
  ASSERT_TRUE(blocks_.Pin("", Tokens(1, 8), 100).ok());
  blocks_.OnStepsAbandoned();
  EXPECT_EQ(blocks_.counts().pinned, 0);
  EXPECT_EQ(blocks_.counts().free, 8);
  EXPECT_FALSE(blocks_.Unpin("", Tokens(1, 8)));
}

}  // namespace
}  // namespace quire
