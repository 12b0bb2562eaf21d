// The thread of the election.
#include "kv_manager/leadership/leadership.h"

#include <gtest/gtest.h>

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
  Candidate(SharedLease* lease, int number, absl::Duration duration = kLongLease) {
    auto access = std::make_unique<LeaseAccess>(lease, number);
    access_ = access.get();
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
