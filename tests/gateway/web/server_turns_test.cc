// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/server_turns.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

// Pieces write the name of their address.
class ServerTurnsTest : public ::testing::Test {
 protected:
  void Push(const std::string& address, int64_t duration_us, int count = 1) {
    for (int i = 0; i < count; ++i) {
      turns_.Push(address, [this, address, duration_us] {
        clock_.Advance(duration_us);
        done_ += address;
      });
    }
  }
  std::string Run(int64_t duration_us = 1'000'000) {
    done_.clear();
    turns_.Run(duration_us);
    return done_;
  }

  ManualClock clock_;
  ServerTurns turns_{&clock_};
  std::string done_;
};

TEST_F(ServerTurnsTest, AnAddressWithOnePieceDoesNotWaitForTheManyOfAnother) {
  Push("a", 10, 5);
  Push("b", 10);
  EXPECT_EQ(Run(), "abaaaa");
  EXPECT_TRUE(turns_.empty());
}

TEST_F(ServerTurnsTest, AddressesGetTheSameTime) {
  Push("a", 30, 3);
  Push("b", 10, 6);
  EXPECT_EQ(Run(), "abbbabbba");
}

TEST_F(ServerTurnsTest, TheTimeIsLimitedAndTheRestWaits) {
  Push("a", 10, 5);
  EXPECT_EQ(Run(25), "aaa");
  EXPECT_FALSE(turns_.empty());
  EXPECT_EQ(Run(0), "a") << "one piece at least";
  EXPECT_EQ(Run(), "a");
  EXPECT_EQ(Run(), "");
}

TEST_F(ServerTurnsTest, AnAddressThatWasAwayIsNextAndHasSavedNothing) {
  Push("a", 10, 10);
  EXPECT_EQ(Run(50), "aaaaa");
  Push("b", 10, 5);
  EXPECT_EQ(Run(),
            "babababab"
            "a");
}

TEST_F(ServerTurnsTest, AnAddressThatWaitsForNothingKeepsWhatItHasUsed) {
  Push("a", 100);
  Push("b", 10, 12);
  EXPECT_EQ(Run(110), "ab");
  Push("a", 100);
  EXPECT_EQ(Run(), "bbbbbbbbbabb");
}

TEST_F(ServerTurnsTest, APieceMayPushTheNextOneOfItsAddress) {
  turns_.Push("a", [this] {
    clock_.Advance(10);
    done_ += "a";
    Push("a", 10);
  });
  Push("b", 10);
  EXPECT_EQ(Run(), "aba");
}

}  // namespace
}  // namespace quire
