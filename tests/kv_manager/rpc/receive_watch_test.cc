// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/receive_watch.h"

#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Wait = ReceiveWatch::Wait;

constexpr int64_t kMiB = 1 << 20;

// A watch without a thread, over connections whose bytes the test sets.
class ReceiveWatchTest : public ::testing::Test {
 protected:
  ReceiveWatchTest()
      : watch_({.max_bytes = 100 * kMiB,
                .max_connection_bytes = 50 * kMiB,
                .max_message_bytes = 16 * kMiB,
                .max_messages = 10,
                .timeout = absl::Seconds(30)},
               &clock_, /*has_thread=*/false) {
    watch_.CountBytesWith([this](const std::string& peer) -> std::optional<int64_t> {
      const auto it = received_.find(peer);
      return it == received_.end() ? std::nullopt : std::optional<int64_t>(it->second);
    });
  }

  // Begins a message that the watch may end under the name `name`. From here on the watch knows the connection.
  uint64_t Begin(const std::string& peer, const std::string& name, Wait wait = Wait::kLimited) {
    received_[peer] += 0;
    const uint64_t id = watch_.Begin(peer, wait, [this, name](const absl::Status& status) {
      ended_.push_back(name);
      status_ = status;
    });
    watch_.Check();
    return id;
  }

  // Checks twice, because a connection may be beyond its limits for a moment.
  void Check(absl::Duration later = absl::Milliseconds(30)) {
    clock_.Advance(absl::ToInt64Microseconds(later));
    watch_.Check();
    watch_.Check();
  }

  ManualClock clock_;
  std::map<std::string, int64_t> received_;  // By peer.
  std::vector<std::string> ended_;           // In this order.
  absl::Status status_;                      // Of the last one.
  ReceiveWatch watch_;
};

TEST_F(ReceiveWatchTest, AMessageThatArrivesIsLeftAlone) {
  const uint64_t id = Begin("a", "message");
  received_["a"] += 16 * kMiB;
  Check();
  EXPECT_TRUE(watch_.End(id, 16 * kMiB));
  Check();
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(ReceiveWatchTest, ARequestThatDoesNotArriveInTimeEnds) {
  const uint64_t id = Begin("a", "late");
  Begin("a", "stream", Wait::kUnlimited);
  Check(absl::Seconds(29));
  const uint64_t young = Begin("a", "young");
  EXPECT_THAT(ended_, IsEmpty());
  Check(absl::Seconds(1));
  EXPECT_THAT(ended_, ElementsAre("late"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status_.message(), "the request has not arrived completely within 30s (--receive-timeout)");
  EXPECT_EQ(ReasonOf(status_)->word, "RECEIVE_TIMEOUT");
  EXPECT_FALSE(watch_.End(id, 10));
  EXPECT_TRUE(watch_.End(young, 10));
}

// gRPC would keep all bytes of such a message and look at its size afterwards.
TEST_F(ReceiveWatchTest, AMessageThatIsTooLargeEndsBeforeItHasArrived) {
  Begin("a", "large");
  received_["a"] += 17 * kMiB;
  Check();
  EXPECT_THAT(ended_, IsEmpty());
  received_["a"] += 2 * kMiB;
  Check();
  EXPECT_THAT(ended_, ElementsAre("large"));
  EXPECT_EQ(status_.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status_.message()), HasSubstr("the limit is 16777216 bytes for a message"));
  EXPECT_EQ(ReasonOf(status_)->word, "RECEIVING_TOO_MUCH");
}

TEST_F(ReceiveWatchTest, AConnectionHasALimitOfItsOwn) {
  const uint64_t other = Begin("b", "other");
  received_["b"] += 10 * kMiB;
  for (int i = 0; i < 4; ++i) Begin("a", absl::StrCat(i));
  received_["a"] += 50 * kMiB;
  Check();
  EXPECT_THAT(ended_, IsEmpty());
  received_["a"] += 1;
  clock_.Advance(1000);
  const uint64_t young = Begin("a", "young");
  Check(absl::Milliseconds(1));
  EXPECT_THAT(ended_, ElementsAre("0", "1", "2", "3"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("half of --max-receiving-bytes"));
  EXPECT_TRUE(watch_.End(young, 10));
  EXPECT_TRUE(watch_.End(other, 10 * kMiB));
}

TEST_F(ReceiveWatchTest, InTotalTheConnectionThatHasSentMostEndsFirst) {
  for (const char* peer : {"a", "b", "c"}) {
    for (int i = 0; i < 3; ++i) Begin(peer, peer);
  }
  received_["a"] += 30 * kMiB;
  received_["b"] += 40 * kMiB;
  received_["c"] += 30 * kMiB;
  Check();
  EXPECT_THAT(ended_, IsEmpty());
  received_["a"] += 1;
  Check();
  EXPECT_THAT(ended_, ElementsAre("b", "b", "b"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("104857600 (--max-receiving-bytes)"));
}

TEST_F(ReceiveWatchTest, InNumberTheConnectionThatHasBegunMostEndsFirst) {
  for (int i = 0; i < 5; ++i) Begin("a", "a");
  Begin("b", "stream", Wait::kUnlimited);
  for (int i = 0; i < 4; ++i) Begin("b", "b");
  const uint64_t id = Begin("c", "c");
  Check();
  EXPECT_THAT(ended_, IsEmpty());
  Begin("d", "d");
  Check();
  EXPECT_THAT(ended_, ElementsAre("a", "a", "a", "a", "a"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("the limit is 10"));
  EXPECT_TRUE(watch_.End(id, 0));
}

// A message whose size is not known when it fails is not charged to those that continue.
TEST_F(ReceiveWatchTest, AMessageThatFailsLeavesNothingBehind) {
  Begin("a", "stream", Wait::kUnlimited);
  for (int i = 0; i < 5; ++i) {
    const uint64_t id = Begin("a", "cancelled");
    received_["a"] += 15 * kMiB;
    Check();
    EXPECT_TRUE(watch_.End(id, std::nullopt));
  }
  const uint64_t late = Begin("a", "late");
  received_["a"] += 15 * kMiB;
  Check(absl::Seconds(30));
  EXPECT_THAT(ended_, ElementsAre("late"));
  EXPECT_FALSE(watch_.End(late, std::nullopt));
  received_["a"] += 15 * kMiB;
  Check();
  EXPECT_THAT(ended_, ElementsAre("late"));
}

TEST_F(ReceiveWatchTest, AStreamOutlivesAGreedyCallBesideIt) {
  Begin("a", "stream", Wait::kUnlimited);
  clock_.Advance(1'000'000);
  Begin("a", "large");
  received_["a"] += 40 * kMiB;
  Check(absl::Milliseconds(1));
  EXPECT_THAT(ended_, ElementsAre("large"));
  EXPECT_THAT(std::string(status_.message()), HasSubstr("the limit is 16777216 bytes for a message"));
  Check();
  EXPECT_THAT(ended_, ElementsAre("large"));
}

TEST_F(ReceiveWatchTest, BytesThatArriveTogetherWithTheirMessageAreNotTooMuch) {
  Begin("a", "stream", Wait::kUnlimited);
  received_["a"] += 40 * kMiB;
  watch_.Check();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(watch_.End(watch_.Begin("a", Wait::kLimited, nullptr), 13 * kMiB));
  Check();
  EXPECT_THAT(ended_, IsEmpty());
}

// Small messages cost more than their size, and the connection has an idle stream all the time.
TEST_F(ReceiveWatchTest, ABusyConnectionIsNotTakenForAGreedyOne) {
  Begin("a", "stream", Wait::kUnlimited);
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t id = Begin("a", "small");
    received_["a"] += 2000;
    ASSERT_TRUE(watch_.End(id, 100));
    if (i % 100 == 0) Check();
  }
  Check();
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(ReceiveWatchTest, CreditFromSmallMessagesCannotBeSaved) {
  Begin("a", "stream", Wait::kUnlimited);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(watch_.End(Begin("a", "small"), 0));
  Check();
  received_["a"] += 20 * kMiB;
  Check();
  EXPECT_THAT(ended_, ElementsAre("stream"));
}

TEST_F(ReceiveWatchTest, WithoutACounterOnlyTimeAndNumberCount) {
  watch_.CountBytesWith(nullptr);
  Begin("a", "a");
  received_["a"] += 1000 * kMiB;
  Check();
  EXPECT_THAT(ended_, IsEmpty());
  Check(absl::Seconds(30));
  EXPECT_THAT(ended_, ElementsAre("a"));
}

TEST(ReceiveWatchThreadTest, TheThreadWakesForAMessageAfterAPause) {
  ReceiveWatch watch({.timeout = absl::Milliseconds(1)}, &SteadyClock());
  for (int i = 0; i < 2; ++i) {
    if (i == 1) absl::SleepFor(ReceiveWatch::kQuietInterval * 60);  // Until the thread sleeps, after 51 idle checks.
    // The status itself stays in its thread: copies share counted payloads, and ThreadSanitizer does not see the counts
    // of Abseil's library.
    const auto ended = std::make_shared<std::promise<std::string>>();
    watch.Begin("a", Wait::kLimited, [ended](const absl::Status& status) {
      const auto reason = ReasonOf(status);
      ended->set_value(absl::IsDeadlineExceeded(status) && reason.has_value() ? reason->word : status.ToString());
    });
    std::future<std::string> end = ended->get_future();
    ASSERT_EQ(end.wait_for(std::chrono::minutes(1)), std::future_status::ready) << "message " << i;
    EXPECT_EQ(end.get(), "RECEIVE_TIMEOUT");
  }
}

}  // namespace
}  // namespace quire
