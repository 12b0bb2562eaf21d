// SPDX-License-Identifier: Apache-2.0

#include "gateway/manager_link/leader_watch.h"

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr size_t kLeader = 0, kStandby = 1;

// Two managers. The leader owes an answer. Looks and questions come when the test says so.
class LeaderWatchTest : public ::testing::Test {
 protected:
  void Look(int num_looks = 1) {
    for (int i = 0; i < num_looks && !due_.empty(); ++i) {
      const auto look = std::move(due_.front());
      due_.pop_front();
      look();
    }
  }
  // The watch has asked this manager for its health.
  bool IsAsked(size_t manager) const { return asked_.contains(manager); }
  void Answer(size_t manager, LeaderWatch::Answer answer) {
    ASSERT_TRUE(IsAsked(manager));
    const auto done = std::move(asked_.at(manager));
    asked_.erase(manager);
    done(answer);
  }

  std::deque<std::function<void()>> due_;
  std::map<size_t, std::function<void(LeaderWatch::Answer)>> asked_;
  std::vector<std::pair<size_t, size_t>> given_up_;
  bool is_awaited_ = true;
  LeaderWatch watch_{
      2,
      [this](std::chrono::milliseconds /*delay*/, auto function) { due_.push_back(std::move(function)); },
      {.is_awaited = [this](size_t manager) { return manager == kLeader && is_awaited_; },
       .ask = [this](size_t manager, auto done) { asked_[manager] = std::move(done); },
       .give_up = [this](size_t silent, size_t leader) { given_up_.emplace_back(silent, leader); }}};
};

constexpr LeaderWatch::Answer kNone{.has_come = false, .is_serving = false};
constexpr LeaderWatch::Answer kStandsBy{.has_come = true, .is_serving = false};
constexpr LeaderWatch::Answer kServes{.has_come = true, .is_serving = true};

TEST_F(LeaderWatchTest, ASilentLeaderIsGivenUpAsSoonAsAnotherManagerServes) {
  watch_.OnSent();
  Look(3);
  EXPECT_FALSE(IsAsked(kLeader)) << "it has been silent for less than a second";
  Look();
  Answer(kLeader, kNone);
  Look();
  Answer(kStandby, kStandsBy);
  EXPECT_THAT(given_up_, IsEmpty());
  Look();
  Answer(kStandby, kServes);
  EXPECT_THAT(given_up_, ElementsAre(Pair(kLeader, kStandby)));
}

TEST_F(LeaderWatchTest, AManagerThatAnswersItsHealthCheckIsNotGivenUpHoweverLongItTakes) {
  watch_.OnSent();
  for (int i = 0; i < 5; ++i) {
    Look(4);
    if (IsAsked(kLeader)) Answer(kLeader, kServes);
  }
  EXPECT_FALSE(IsAsked(kStandby));
  EXPECT_THAT(given_up_, IsEmpty());
}

TEST_F(LeaderWatchTest, AManagerThatSendsSomethingIsNotAskedForItsHealth) {
  watch_.OnSent();
  for (int i = 0; i < 12; ++i) {
    Look();
    watch_.OnHeard(kLeader);
  }
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(LeaderWatchTest, ALateAnswerKeepsTheLeader) {
  watch_.OnSent();
  Look(4);
  Answer(kLeader, kNone);
  Look();
  watch_.OnHeard(kLeader);
  Answer(kStandby, kServes);
  EXPECT_THAT(given_up_, IsEmpty());
}

TEST_F(LeaderWatchTest, NothingIsLookedAtWhileNothingIsOwed) {
  watch_.OnSent();
  is_awaited_ = false;
  Look();
  EXPECT_THAT(due_, IsEmpty());
  is_awaited_ = true;
  watch_.OnSent();
  watch_.OnSent();
  EXPECT_EQ(due_.size(), 1u);
}

}  // namespace
}  // namespace quire
