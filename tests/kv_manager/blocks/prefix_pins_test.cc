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

  absl::StatusOr<int> PinFor(const std::string& tenant, const Tokens& tokens, int64_t expires_us, int max_blocks = 3) {
    return pins_.PinForTenant(tenant, max_blocks, "", tokens, expires_us);
  }

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

TEST_F(PrefixPinsTest, PinOfARequestKeepsTheCachedWholeBlocksUntilItsTime) {
  Cache({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(PinFor("a", {9, 9}, 100).value(), 0);
  EXPECT_EQ(PinFor("a", {1, 2, 3, 4, 5}, 100).value(), 2);
  EXPECT_EQ(pins_.num_pins(), 1);
  EXPECT_EQ(pins_.next_expiry_us(), 100);
  EXPECT_EQ(tree_.num_evictable(), 1);
  EXPECT_FALSE(pins_.Unpin("", {1, 2, 3, 4})) << "it is none of an operator";
  pins_.Expire(99);
  EXPECT_EQ(pins_.num_blocks(), 2);
  pins_.Expire(100);
  EXPECT_EQ(pins_.num_blocks(), 0);
  EXPECT_EQ(pins_.num_pins(), 0);
  EXPECT_EQ(tree_.num_evictable(), 3);
}

TEST_F(PrefixPinsTest, PinOfARequestIsRenewedAndNeverShortened) {
  Cache({1, 2, 3, 4});
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 100).ok());
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4, 5}, 300).ok()) << "the same blocks";
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 200).ok());
  EXPECT_EQ(pins_.num_pins(), 1);
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 1);
  pins_.Expire(299);
  EXPECT_EQ(pins_.num_blocks(), 2);
  pins_.Expire(300);
  EXPECT_EQ(pins_.num_blocks(), 0);
}

TEST_F(PrefixPinsTest, APinIsReplacedByALongerOneThatEndsLater) {
  Cache({1, 2, 3, 4});
  ASSERT_TRUE(PinFor("a", {1, 2}, 100).ok());
  ASSERT_TRUE(PinFor("b", {1, 2}, 100).ok());
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 99).ok());
  EXPECT_EQ(pins_.num_pins(), 3);
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 100).ok());
  EXPECT_EQ(pins_.num_pins(), 2) << "one of each tenant";
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 2);
  EXPECT_EQ(pins_.NumPins(BlockId{1}), 1);
  ASSERT_TRUE(PinFor("a", {1, 2}, 100).ok());
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 50).ok()) << "it still ends at 100";
  EXPECT_EQ(pins_.num_pins(), 2);
}

TEST_F(PrefixPinsTest, PinsOfATenantHaveALimitOfTheirOwn) {
  Cache({1, 2, 3, 4});
  Cache({5, 6});
  EXPECT_EQ(PinFor("a", {1, 2}, 100, /*max_blocks=*/1).value(), 1);
  const absl::Status status = PinFor("a", {1, 2, 3, 4}, 100, /*max_blocks=*/1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("adds 1 blocks to 1 pinned ones of the tenant, the limit is 1"));
  EXPECT_FALSE(PinFor("a", {5, 6}, 100, /*max_blocks=*/1).ok());
  EXPECT_EQ(PinFor("b", {5, 6}, 100, /*max_blocks=*/1).value(), 1) << "another tenant";
  EXPECT_EQ(PinFor("a", {1, 2}, 200, /*max_blocks=*/1).value(), 1) << "what is pinned is renewed";
  EXPECT_EQ(pins_.num_blocks(), 2);
  pins_.Expire(200);
  EXPECT_EQ(PinFor("a", {5, 6}, 300, /*max_blocks=*/1).value(), 1);
}

TEST_F(PrefixPinsTest, TenantsTogetherHaveTheLimitOfAllPins) {
  Cache({1, 2, 3, 4});
  Cache({5, 6, 7, 8});
  ASSERT_TRUE(PinFor("a", {1, 2, 3, 4}, 100).ok());
  EXPECT_FALSE(PinFor("b", {5, 6, 7, 8}, 100).ok());
  EXPECT_EQ(PinFor("b", {1, 2, 3, 4}, 100).value(), 2) << "blocks that are pinned already";
  EXPECT_EQ(PinFor("b", {5, 6}, 100).value(), 1);
  EXPECT_EQ(PinFor("c", {5, 6}, 100).status().code(), absl::StatusCode::kResourceExhausted) << "a fourth pin";
  EXPECT_EQ(pins_.num_pins(), 3);
}

TEST_F(PrefixPinsTest, PinsOfRequestsGiveWayToThoseOfOperators) {
  Cache({1, 2, 3, 4});
  Cache({5, 6, 7, 8});
  ASSERT_TRUE(PinFor("a", {1, 2}, 200).ok());
  ASSERT_TRUE(PinFor("b", {5, 6}, 100).ok());
  EXPECT_EQ(Pin({5, 6, 7, 8}, 100), 2) << "it holds a block that was pinned";
  EXPECT_EQ(pins_.num_pins(), 3);
  EXPECT_EQ(Pin({1, 2}, 100), 1);
  EXPECT_EQ(pins_.num_pins(), 3) << "the pin of b has ended, because it would expire first";
  EXPECT_FALSE(pins_.Pin("", {1, 2, 3, 4}, 100).ok());
  EXPECT_EQ(pins_.num_pins(), 3) << "nothing has changed";
  EXPECT_TRUE(pins_.EndOne());
  EXPECT_EQ(pins_.NumPins(BlockId{0}), 1) << "those of requests give way first";
  EXPECT_TRUE(pins_.Unpin("", {1, 2}));
  EXPECT_TRUE(pins_.Unpin("", {5, 6, 7, 8}));
  EXPECT_FALSE(pins_.EndOne());
}

}  // namespace
}  // namespace quire
