// SPDX-License-Identifier: Apache-2.0

// The thread of the election.
#include "kv_manager/leadership/leadership.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/kv_manager/leadership/shared_lease.h"

namespace quire {
namespace {

// Long enough for a busy machine.
constexpr absl::Duration kLongLease = absl::Seconds(8);

// A candidate with a thread.
class Candidate {
 public:
  // `prepare` gets the way to the lease before the first call.
  Candidate(SharedLease* lease, int number, absl::Duration duration = kLongLease,
            const std::function<void(LeaseAccess*)>& prepare = nullptr) {
    auto access = std::make_unique<LeaseAccess>(lease, number);
    access_ = access.get();
    if (prepare != nullptr) prepare(access_);
    leadership_ = std::make_unique<Leadership>(
        duration, std::move(access),
        Leadership::Hooks{.on_elected = [this](uint64_t term) { elected_.set_value(term); },
                          .on_lost = [this](const absl::Status& reason) { lost_.set_value(reason); }});
    leadership_->Start();
  }

  uint64_t AwaitTerm() { return elected_.get_future().get(); }
  absl::Status AwaitLoss() { return lost_.get_future().get(); }
  Leadership& leadership() { return *leadership_; }
  LeaseAccess& access() { return *access_; }

 private:
  std::promise<uint64_t> elected_;
  std::promise<absl::Status> lost_;
  LeaseAccess* access_;
  std::unique_ptr<Leadership> leadership_;
};

TEST(LeadershipTest, AnOrderlyEndGivesTheLeaseToTheNext) {
  SharedLease lease(absl::Hours(1), &BootClock());  // So only an orderly end frees it.
  Candidate first(&lease, 1);
  EXPECT_EQ(first.AwaitTerm(), 1u);
  Candidate second(&lease, 2);
  first.leadership().Stop();
  EXPECT_EQ(second.AwaitTerm(), 2u);
  EXPECT_EQ(lease.holder(), 2);
}

TEST(LeadershipTest, AStandbyThatIsStoppedTakesNothing) {
  SharedLease lease(absl::Hours(1), &BootClock());
  lease.Take(7);
  Candidate waiting(&lease, 1);
  waiting.leadership().Stop();
  EXPECT_EQ(lease.holder(), 7);
  EXPECT_FALSE(waiting.leadership().MayLead());
}

TEST(LeadershipTest, AStandbyThatIsElectedWhileItStopsToWaitLeadsUntilItStops) {
  SharedLease lease(absl::Hours(1), &BootClock());
  std::promise<void> asks, answer;
  Candidate candidate(&lease, 1, kLongLease, [&](LeaseAccess* access) {
    access->BeforeTake([&] {
      asks.set_value();
      answer.get_future().wait();
    });
  });
  asks.get_future().wait();
  std::future<bool> leads = std::async(std::launch::async, [&] { return candidate.leadership().StopWaiting(); });
  // The answer comes while StopWaiting waits for it, unless the other thread is slow to start.
  EXPECT_EQ(leads.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  answer.set_value();
  EXPECT_TRUE(leads.get());
  EXPECT_EQ(candidate.AwaitTerm(), 1u);
  EXPECT_TRUE(candidate.leadership().MayLead());
  EXPECT_EQ(lease.holder(), 1);
  EXPECT_TRUE(candidate.leadership().StopWaiting());
  candidate.leadership().Stop();
  EXPECT_FALSE(candidate.leadership().MayLead());
  EXPECT_EQ(lease.holder(), 0);
}

TEST(LeadershipTest, AStandbyThatStopsToWaitNeverLeads) {
  SharedLease lease(absl::Hours(1), &BootClock());
  lease.Take(7);
  Candidate waiting(&lease, 1);
  EXPECT_FALSE(waiting.leadership().StopWaiting());
  lease.Free(7);
  waiting.leadership().Stop();
  EXPECT_EQ(lease.holder(), 0);
  EXPECT_FALSE(waiting.leadership().MayLead());
}

// Otherwise the leader before could send plans beside the next one.
TEST(LeadershipTest, ALeaderLeadsNoLongerWhenItGivesTheLeaseBack) {
  SharedLease lease(absl::Hours(1), &BootClock());
  Candidate* leader = nullptr;
  std::promise<bool> may_lead;
  Candidate candidate(&lease, 1, kLongLease, [&](LeaseAccess* access) {
    access->BeforeRelease([&] { may_lead.set_value(leader->leadership().MayLead()); });
  });
  leader = &candidate;
  candidate.AwaitTerm();
  candidate.leadership().Stop();
  EXPECT_FALSE(may_lead.get_future().get());
  EXPECT_FALSE(candidate.leadership().status().is_leader);
}

TEST(LeadershipTest, ALeaseThatWasTakenWithoutAnAnswerIsGivenBack) {
  SharedLease lease(absl::Hours(1), &BootClock());
  Candidate candidate(&lease, 1, kLongLease, [](LeaseAccess* access) { access->LoseAnswers(); });
  while (lease.holder() != 1) std::this_thread::yield();
  candidate.leadership().Stop();
  EXPECT_EQ(lease.holder(), 0);
}

TEST(LeadershipTest, ALeaderHearsThatItHasLost) {
  constexpr absl::Duration kShort = absl::Milliseconds(300);
  SharedLease lease(kShort, &BootClock());
  Candidate first(&lease, 1, kShort);
  first.AwaitTerm();
  first.access().Cut(true);
  EXPECT_EQ(first.AwaitLoss().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(first.leadership().MayLead());
}

TEST(LeadershipTest, OneOfManyCandidatesThatStartAtOnceLeads) {
  SharedLease lease(absl::Hours(1), &BootClock());
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (int number = 1; number <= 8; ++number) candidates.push_back(std::make_unique<Candidate>(&lease, number));
  const auto num_leaders = [&] {
    int count = 0;
    for (const auto& candidate : candidates) count += candidate->leadership().MayLead() ? 1 : 0;
    return count;
  };
  while (num_leaders() == 0) std::this_thread::yield();
  // Every candidate has looked at the lease.
  for (const auto& candidate : candidates) {
    while (candidate->leadership().status().leader.empty()) std::this_thread::yield();
  }
  EXPECT_EQ(num_leaders(), 1);
}

}  // namespace
}  // namespace quire
