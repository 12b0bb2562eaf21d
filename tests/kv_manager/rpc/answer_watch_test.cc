// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/answer_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Wait = AnswerWatch::Wait;

// A watch of 100 bytes without a thread.
class AnswerWatchTest : public ::testing::Test {
 protected:
  // Begins an answer whose call the watch may cancel under the name `name`.
  uint64_t Begin(const std::string& peer, const std::string& name, int64_t num_bytes, Wait wait = Wait::kUnlimited) {
    return watch_.Begin(peer, num_bytes, wait, [this, name] { cancelled_.push_back(name); });
  }

  ManualClock clock_;
  AnswerWatch watch_{100, absl::Seconds(30), &clock_, /*has_thread=*/false};
  std::vector<std::string> cancelled_;
};

TEST_F(AnswerWatchTest, NothingIsCancelledWithinTheLimit) {
  Begin("ipv4:10.0.0.1:1", "a", 60);
  Begin("ipv4:10.0.0.2:1", "b", 40);
  clock_.Advance(int64_t{3600} * 1000000);
  watch_.Check();
  EXPECT_THAT(cancelled_, IsEmpty());
}

TEST_F(AnswerWatchTest, OldestAnswersOfTheAddressWithMostAreCancelledFirst) {
  Begin("ipv4:10.0.0.2:1", "other", 30);
  Begin("ipv4:10.0.0.1:1", "first", 20);
  Begin("ipv4:10.0.0.1:2", "second", 20);
  Begin("ipv4:10.0.0.1:3", "third", 40);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("first"));
  Begin("ipv4:10.0.0.2:2", "other, large", 50);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("first", "other", "second"));
}

TEST_F(AnswerWatchTest, ManyConnectionsOfAnAddressCountAsOne) {
  for (int i = 0; i < 10; ++i) Begin("ipv6:[2001:db8::1]:" + std::to_string(1000 + i), std::to_string(i), 9);
  Begin("ipv6:[2001:db8::2]:1000", "large", 30);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("0", "1", "2"));
}

TEST_F(AnswerWatchTest, AnAnswerThatHasWaitedGoesBeforeLargeOnesThatHaveNot) {
  for (int i = 0; i < 5; ++i) Begin("ipv6:[2001:db8::" + std::to_string(i) + "]:1", "unread " + std::to_string(i), 10);
  clock_.Advance(2000000);
  Begin("ipv4:10.0.0.1:1", "large", 60);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("unread 0"));
}

TEST_F(AnswerWatchTest, ReadAnswersTakeNothing) {
  for (int i = 0; i < 5; ++i) watch_.End(Begin("unix:", "read", 90));
  watch_.Check();
  EXPECT_THAT(cancelled_, IsEmpty());
}

TEST_F(AnswerWatchTest, AnAnswerMayGrow) {
  const uint64_t id = Begin("unix:", "a", 20);
  watch_.Resize(id, 100);
  watch_.Check();
  EXPECT_THAT(cancelled_, IsEmpty());
  watch_.Resize(id, 101);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("a"));
  watch_.Resize(id, 1000);
  watch_.End(id);
  Begin("unix:", "b", 100);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("a")) << "what was cancelled does not count";
}

TEST_F(AnswerWatchTest, AnAnswerWithALimitIsCancelledAtItsTime) {
  Begin("unix:", "limited", 20, Wait::kLimited);
  Begin("unix:", "unlimited", 20);
  clock_.Advance(29999999);
  watch_.Check();
  EXPECT_THAT(cancelled_, IsEmpty());
  clock_.Advance(1);
  watch_.Check();
  EXPECT_THAT(cancelled_, ElementsAre("limited"));
}

}  // namespace
}  // namespace quire
