// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/prefix_pins.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<TokenId>;

// A pool of 8 blocks of 2 tokens each. The tree is the only owner of the used blocks. At most 3 blocks may be pinned.
class PrefixPinsTest : public ::testing::Test {
 protected:
  void Cache(const Tokens& tokens, const std::string& salt = "") {
    std::vector<BlockRef> blocks;
    std::optional<BlockId> parent;
    for (size_t i = 0; i < tokens.size(); i += 2) {
      blocks.push_back(pool_.Take());
      parent = tree_.Insert(salt, parent, absl::MakeConstSpan(tokens).subspan(i, 2), blocks.back(), StepId{1});
    }
  }

  int Pin(const Tokens& tokens, int64_t expires_us) { return pins_.Pin("", tokens, expires_us).value(); }

  BlockPool pool_{8};
  PrefixTree tree_{2, &pool_};
  PrefixPins pins_{&tree_, 3};
};

TEST_F(PrefixPinsTest, PinKeepsTheCachedWholeBlocksOfItsTokens) {
  Cache({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Pin({1, 2, 3, 4, 5}, 100), 2);
  EXPECT_EQ(pins_.num_blocks(), 2);
  EXPECT_EQ(tree_.num_evictable(), 1);
  EXPECT_EQ(tree_.EvictOne(), BlockId{2});
  EXPECT_EQ(tree_.EvictOne(), std::nullopt);
  EXPECT_EQ(pool_.num_used(), 2);
}

TEST_F(PrefixPinsTest, NothingCachedIsNothingPinned) {
  Cache({1, 2}, "a");
  EXPECT_EQ(Pin({1, 2}, 100), 0);
  EXPECT_EQ(Pin({}, 100), 0);
  EXPECT_EQ(pins_.num_pins(), 0);
}

TEST_F(PrefixPinsTest, PinEndsAtItsTime) {
  Cache({1, 2});
  Cache({3, 4});
  Pin({1, 2}, 100);
  Pin({3, 4}, 200);
  pins_.Expire(99);
  EXPECT_EQ(pins_.num_blocks(), 2);
  pins_.Expire(100);
  EXPECT_EQ(pins_.num_blocks(), 1);
  EXPECT_EQ(tree_.EvictOne(), BlockId{0});
  pins_.Expire(200);
  EXPECT_EQ(tree_.EvictOne(), BlockId{1});
}

TEST_F(PrefixPinsTest, SecondPinOfTheSameTokensReplacesTheFirst) {
  Cache({1, 2});
  Pin({1, 2, 3, 4}, 100);
  Cache({1, 2, 3, 4});
  EXPECT_EQ(Pin({1, 2, 3, 4}, 300), 2);
  EXPECT_EQ(pins_.num_pins(), 1);
  pins_.Expire(100);
  EXPECT_EQ(pins_.num_blocks(), 2);
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 1);
  EXPECT_TRUE(pins_.Unpin("", {1, 2, 3, 4}));
  EXPECT_EQ(pins_.num_blocks(), 0);
}

TEST_F(PrefixPinsTest, BlockOfTwoPinsStaysUntilBothEnd) {
  Cache({1, 2, 3, 4});
  Pin({1, 2}, 100);
  Pin({1, 2, 3, 4}, 200);
  EXPECT_EQ(pins_.num_blocks(), 2);
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 2);
  pins_.Expire(150);
  EXPECT_EQ(pins_.num_blocks(), 2);
  EXPECT_EQ(tree_.EvictOne(), std::nullopt);
  pins_.Expire(200);
  EXPECT_EQ(tree_.num_evictable(), 2);
}

TEST_F(PrefixPinsTest, PinBeyondTheQuotaChangesNothing) {
  Cache({1, 2, 3, 4});
  Cache({5, 6, 7, 8});
  Pin({1, 2, 3, 4}, 100);
  const absl::Status status = pins_.Pin("", {5, 6, 7, 8}, 100).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("adds 2 blocks to 2 pinned ones, the limit is 3"));
  EXPECT_EQ(pins_.num_blocks(), 2);
  EXPECT_EQ(tree_.num_evictable(), 2);
  EXPECT_EQ(Pin({5, 6}, 100), 1) << "what fits is pinned";
}

TEST_F(PrefixPinsTest, PinsOfTheSameBlocksAreLimitedToo) {
  Cache({1, 2});
  Pin({1, 2}, 100);
  Pin({1, 2, 8}, 100);
  Pin({1, 2, 9}, 100);
  EXPECT_EQ(pins_.Pin("", {1, 2, 7}, 100).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Pin({1, 2, 9}, 200), 1) << "a replaced pin is no further one";
}

TEST_F(PrefixPinsTest, UnpinNamesExactlyWhatWasPinned) {
  Cache({1, 2, 3, 4});
  Pin({1, 2, 3, 4}, 100);
  EXPECT_FALSE(pins_.Unpin("", {1, 2}));
  EXPECT_FALSE(pins_.Unpin("a", {1, 2, 3, 4}));
  EXPECT_TRUE(pins_.Unpin("", {1, 2, 3, 4}));
  EXPECT_FALSE(pins_.Unpin("", {1, 2, 3, 4}));
  EXPECT_EQ(tree_.num_evictable(), 2);
}

TEST_F(PrefixPinsTest, ClearEndsAllPins) {
  Cache({1, 2, 3, 4});
  Pin({1, 2, 3, 4}, 100);
  pins_.Clear();
  EXPECT_EQ(pins_.num_blocks(), 0);
  EXPECT_EQ(tree_.num_evictable(), 2);
}

TEST_F(PrefixPinsTest, ThePinThatExpiresFirstIsTheFirstToGiveWay) {
  Cache({1, 2});
  Cache({3, 4});
  EXPECT_EQ(pins_.next_expiry_us(), INT64_MAX);
  Pin({1, 2}, 200);
  Pin({3, 4}, 100);
  EXPECT_EQ(pins_.next_expiry_us(), 100);
  EXPECT_TRUE(pins_.EndOne());
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 1);
  EXPECT_EQ(pins_.NumPins(BlockId{1}), 0);
  EXPECT_TRUE(pins_.EndOne());
  EXPECT_FALSE(pins_.EndOne());
  EXPECT_EQ(pins_.next_expiry_us(), INT64_MAX);
}

}  // namespace
}  // namespace quire
