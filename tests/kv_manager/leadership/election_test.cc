// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/leadership/election.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/kv_manager/leadership/shared_lease.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using State = Election::State;

constexpr absl::Duration kLease = absl::Seconds(4);
constexpr int64_t kSecond = 1'000'000;

// Two candidates for one lease, in a time that the test moves.
class ElectionTest : public ::testing::Test {
 protected:
  // Runs the election until `seconds` have passed. Time passes in steps of a tenth of a second.
  void Run(Election* election, double seconds) {
    const int64_t end_us = clock_.NowMicros() + static_cast<int64_t>(seconds * kSecond);
    int64_t next_us = clock_.NowMicros();
    while (clock_.NowMicros() < end_us && election->state() != State::kOver) {
      if (clock_.NowMicros() >= next_us) {
        next_us = clock_.NowMicros() + absl::ToInt64Microseconds(election->Round());
      }
      clock_.Advance(kSecond / 10);
    }
  }

  ManualClock clock_;
  SharedLease lease_{kLease, &clock_};
  LeaseAccess first_access_{&lease_, 1};
  LeaseAccess second_access_{&lease_, 2};
  Election first_{kLease, &first_access_, &clock_};
  Election second_{kLease, &second_access_, &clock_};
};

TEST_F(ElectionTest, OneOfTwoCandidatesLeadsAndTheOtherKnowsItsAddress) {
  EXPECT_FALSE(first_.MayLead());
  first_.Round();
  second_.Round();
  EXPECT_TRUE(first_.MayLead());
  EXPECT_TRUE(first_.status().is_leader);
  EXPECT_EQ(first_.status().term, 1u);
  EXPECT_FALSE(second_.MayLead());
  EXPECT_FALSE(second_.status().is_leader);
  EXPECT_EQ(second_.status().leader, "manager1:1");
}

TEST_F(ElectionTest, ALeaderThatRenewsLeadsForAsLongAsItLikes) {
  Run(&first_, 100);
  EXPECT_TRUE(first_.MayLead());
  second_.Round();
  EXPECT_FALSE(second_.MayLead());
}

TEST_F(ElectionTest, AStandbyTakesOverWithAGreaterTermSoonAfterTheLeaseHasEnded) {
  first_.Round();
  Run(&second_, 3.9);
  EXPECT_FALSE(second_.MayLead());
  Run(&second_, 1.2);
  EXPECT_TRUE(second_.MayLead());
  EXPECT_EQ(second_.status().term, 2u);
}

// The process was stopped, or the machine slept: nobody has told the leader.
TEST_F(ElectionTest, ALeaderThatWasPausedDoesNotLeadBeforeItHasAskedAnybody) {
  first_.Round();
  clock_.Advance(3 * kSecond);
  EXPECT_TRUE(first_.MayLead());
  clock_.Advance(kSecond);
  EXPECT_FALSE(first_.MayLead());
  first_.Round();
  EXPECT_EQ(first_.state(), State::kOver);
  EXPECT_THAT(std::string(first_.end().message()), HasSubstr("the process or the machine was paused"));
}

TEST_F(ElectionTest, ALeaderEndsBeforeAnotherCanLeadWhenItCannotRenew) {
  Run(&first_, 10);
  first_access_.Cut(true);
  while (first_.MayLead()) {
    Run(&first_, 0.1);
    EXPECT_FALSE(second_.Round() > absl::Seconds(1));
    EXPECT_FALSE(second_.MayLead());
  }
  Run(&first_, 1);
  EXPECT_EQ(first_.state(), State::kOver);
  EXPECT_THAT(std::string(first_.end().message()), HasSubstr("the last error: the wire is cut"));
  EXPECT_GT(first_.status().failed_calls, 1);
  EXPECT_FALSE(first_.status().is_leader);
}

TEST_F(ElectionTest, ALeaderOutlivesAShortFailureOfTheStore) {
  Run(&first_, 10);
  first_access_.Cut(true);
  Run(&first_, 1.5);
  first_access_.Cut(false);
  Run(&first_, 10);
  EXPECT_TRUE(first_.MayLead());
  EXPECT_GT(first_.status().failed_calls, 0);
}

TEST_F(ElectionTest, ALeaderWhoseLeaseWasTakenEndsAtTheNextRenewal) {
  first_.Round();
  lease_.Free(1);
  lease_.Take(2);
  first_.Round();
  EXPECT_EQ(first_.state(), State::kOver);
  EXPECT_FALSE(first_.MayLead());
  EXPECT_EQ(first_.end(), absl::AbortedError("another manager holds it"));
}

TEST_F(ElectionTest, ACandidateThatCannotReadTheLeaseWaits) {
  first_access_.Cut(true);
  Run(&first_, 60);
  EXPECT_EQ(first_.state(), State::kWaiting);
  EXPECT_GT(first_.status().failed_calls, 50);
  first_access_.Cut(false);
  Run(&first_, 1);
  EXPECT_TRUE(first_.MayLead());
}

// A store whose answer takes longer than the lease lasts.
class SlowLease : public LeaseStore {
 public:
  explicit SlowLease(ManualClock* clock) : clock_(clock) {}

  absl::StatusOr<LeaseHolder> TryAcquire(absl::Duration /*timeout*/) override {
    clock_->Advance(num_calls_++ == 0 ? 5 * kSecond : 0);
    return LeaseHolder{.is_me = true, .term = 1, .address = "me:1"};
  }
  absl::Status Renew(absl::Duration /*timeout*/) override {
    clock_->Advance(5 * kSecond);
    return absl::OkStatus();
  }
  absl::Status Release(absl::Duration /*timeout*/) override { return absl::OkStatus(); }

 private:
  ManualClock* const clock_;
  int num_calls_ = 0;
};

TEST(SlowElectionTest, AnAnswerThatCameTooLateIsNoLease) {
  ManualClock clock;
  SlowLease lease(&clock);
  Election election(kLease, &lease, &clock);
  EXPECT_EQ(election.Round(), absl::ZeroDuration());
  EXPECT_EQ(election.state(), State::kWaiting);
  EXPECT_FALSE(election.MayLead());
  election.Round();
  EXPECT_EQ(election.state(), State::kLeading);
  // The machine sleeps during the renewal, which succeeds.
  election.Round();
  EXPECT_EQ(election.state(), State::kOver);
  EXPECT_FALSE(election.MayLead());
}

}  // namespace
}  // namespace quire
