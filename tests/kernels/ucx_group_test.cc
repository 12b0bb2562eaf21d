// SPDX-License-Identifier: Apache-2.0

#include "kernels/ucx/ucx_group.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/collective_calls.h"
#include "tests/kernels/ucx_processes.h"

namespace quire::ucx {
namespace {

using std::chrono::milliseconds;

constexpr int kNumCalls = 300;
constexpr milliseconds kBeat(100);
// A rank is lost when it has been silent for a second.
constexpr milliseconds kLongestLeave(1200);

bool MakeCalls(Collective* group, int count) {
  std::atomic<bool> is_right = true;
  for (int call = 0; call < count; ++call) {
    if (!Exchange(group, call, &is_right)) return false;
  }
  return is_right;
}

const GroupTransport kShared = {.kind = GroupTransport::Kind::kShared};
const GroupTransport kNetwork = {.kind = GroupTransport::Kind::kNetwork, .devices = "lo"};

class UcxGroupTest : public testing::TestWithParam<GroupTransport> {};

INSTANTIATE_TEST_SUITE_P(, UcxGroupTest, testing::Values(kShared, kNetwork),
                         [](const auto& info) { return info.index == 0 ? "shared" : "network"; });

TEST_P(UcxGroupTest, EveryRankGetsWhatTheOthersSend) {
  for (const int size : {2, 3, 4}) {
    Board* const board = NewBoard();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(Start([&] {
        const auto group = Join(GetParam(), board, 0, rank, size);
        return group != nullptr && MakeCalls(group.get(), kNumCalls) ? 0 : 1;
      }));
    }
    for (const pid_t rank : ranks) EXPECT_EQ(StatusOf(rank), 0) << size << " ranks";
    FreeBoard(board);
  }
}

TEST_P(UcxGroupTest, RankWithAnotherKeyIsRefused) {
  Board* const board = NewBoard();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(Start([&] {
      GroupKey key = {};
      key.back() = static_cast<uint8_t>(rank);
      return Join(GetParam(), board, 0, rank, 2, key) == nullptr ? 0 : 1;
    }));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(StatusOf(rank), 0);
  FreeBoard(board);
}

// A group of which one rank is killed or stopped at a drawn point.
class TroubledGroup {
 public:
  TroubledGroup(const GroupTransport& transport, uint32_t seed)
      : transport_(transport),
        random_(seed),
        size_(2 + static_cast<int>(random_() % 3)),
        victim_(static_cast<int>(random_() % size_)),
        is_killed_(random_() % 2 == 0),
        fault_call_(static_cast<int>(random_() % kNumCalls)),
        board_(NewBoard()) {
    for (int rank = 0; rank < size_; ++rank) {
      ranks_.push_back(Start([&] { return rank == victim_ ? RunVictim() : RunSurvivor(rank); }));
    }
  }
  ~TroubledGroup() { FreeBoard(board_); }

  // Returns what is wrong, or an empty string.
  std::string Finish() {
    const auto has_left = [&](int rank) { return rank == victim_ || board_->left[rank] != 0; };
    const auto end = Clock::now() + milliseconds(kPatienceMs);
    for (int rank = 0; rank < size_; ++rank) {
      while (!has_left(rank) && Clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
    }
    kill(ranks_[victim_], SIGKILL);
    waitpid(ranks_[victim_], nullptr, 0);
    ranks_[victim_] = Start([&] { return RunNext(victim_); });
    std::string wrong, late;
    for (int rank = 0; rank < size_; ++rank) {
      const std::string name = " rank " + std::to_string(rank);
      if (const int status = StatusOf(ranks_[rank]); status != 0)
        wrong += name + " has ended with " + std::to_string(status) + ";";
      if (rank == victim_) continue;
      const std::chrono::nanoseconds took(board_->left[rank] - board_->trouble - board_->delay[rank]);
      if (took > kLongestLeave) {
        late += name + " left after " + std::to_string(std::chrono::duration_cast<milliseconds>(took).count()) + " ms;";
      }
      const std::string reason = board_->reason[rank].data();
      const bool is_known = reason.starts_with("rank " + std::to_string(victim_) + " ");
      if (!is_known) wrong += name + " left because '" + reason + "';";
    }
    was_only_late_ = wrong.empty() && !late.empty();
    return wrong + late;
  }

  // Returns whether the last Finish found a rank that was late, and nothing else.
  bool was_only_late() const { return was_only_late_; }

 private:
  int RunVictim() {
    const auto group = Join(transport_, board_, 0, victim_, size_);
    if (group == nullptr) return 1;
    if (!MakeCalls(group.get(), fault_call_)) return 1;
    board_->trouble = Now();
    kill(getpid(), is_killed_ ? SIGKILL : SIGSTOP);
    return 1;
  }

  int RunSurvivor(int rank) {
    {
      const auto group = Join(transport_, board_, 0, rank, size_);
      if (group == nullptr) return 2;
      std::thread watch([&] { MeasureDelay(rank); });
      std::atomic<bool> is_right = true;
      for (int call = 0; Exchange(group.get(), call, &is_right); ++call) {
      }
      const std::string reason = group->Status().message();
      reason.copy(board_->reason[rank].data(), board_->reason[rank].size() - 1);
      board_->left[rank] = Now();
      watch.join();
      if (!is_right) return 3;
    }
    return RunNext(rank);
  }

  // The survivors and a new process make another group.
  int RunNext(int rank) {
    const auto group = Join(transport_, board_, 1, rank, size_);
    return group != nullptr && MakeCalls(group.get(), 20) ? 0 : 4;
  }

  // Measures by how much a thread of the rank is late that wakes as often as its beats do.
  void MeasureDelay(int rank) {
    int64_t last = Now();
    while (board_->left[rank] == 0) {
      std::this_thread::sleep_for(kBeat);
      const int64_t now = Now();
      board_->delay[rank] = std::max(board_->delay[rank].load(), now - last - std::chrono::nanoseconds(kBeat).count());
      last = now;
    }
  }

  const GroupTransport transport_;
  std::mt19937 random_;
  const int size_;
  const int victim_;
  const bool is_killed_;
  const int fault_call_;
  Board* const board_;
  std::vector<pid_t> ranks_;
  bool was_only_late_ = false;
};

TEST_P(UcxGroupTest, OthersLeaveWhenARankIsLostAndMakeANewGroup) {
  constexpr uint32_t kGroupsAtOnce = 5;
  for (uint32_t first = 0; first < 20; first += kGroupsAtOnce) {
    std::vector<std::unique_ptr<TroubledGroup>> groups;
    for (uint32_t i = 0; i < kGroupsAtOnce; ++i) {
      groups.push_back(std::make_unique<TroubledGroup>(GetParam(), first + i));
    }
    for (uint32_t i = 0; i < kGroupsAtOnce; ++i) {
      std::string wrong = groups[i]->Finish();
      // A busy machine makes a rank late now and then, but hardly twice at the same point.
      if (groups[i]->was_only_late()) wrong = TroubledGroup(GetParam(), first + i).Finish();
      EXPECT_EQ(wrong, "") << "seed " << first + i;
    }
  }
}

// A second without calls is no silence.
TEST_P(UcxGroupTest, RanksThatAreBusyAreNotLost) {
  Board* const board = NewBoard();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(Start([&] {
      const auto group = Join(GetParam(), board, 0, rank, 2);
      if (group == nullptr || !MakeCalls(group.get(), 5)) return 1;
      if (rank == 1) std::this_thread::sleep_for(milliseconds(2500));
      return MakeCalls(group.get(), 5) ? 0 : 2;
    }));
  }
  for (const pid_t rank : ranks) EXPECT_EQ(StatusOf(rank), 0);
  FreeBoard(board);
}

TEST(UcxNetworkTest, LostPeerIsNoticedAtOnce) {
  for (const bool waits_in_a_call : {true, false}) {
    SCOPED_TRACE(waits_in_a_call);
    Board* const board = NewBoard();
    const pid_t victim = Start([&] {
      const auto group = Join(kNetwork, board, 0, 0, 3);
      if (group == nullptr || !MakeCalls(group.get(), 20)) return 1;
      std::this_thread::sleep_for(milliseconds(waits_in_a_call ? 200 : 0));
      return kill(getpid(), SIGKILL);
    });
    std::vector<pid_t> survivors;
    for (int rank = 1; rank < 3; ++rank) {
      survivors.push_back(Start([&] {
        const auto group = Join(kNetwork, board, 0, rank, 3);
        if (group == nullptr || !MakeCalls(group.get(), 20)) return 1;
        alarm(30);  // A rank that notices nothing waits for ever.
        if (!waits_in_a_call) std::this_thread::sleep_for(milliseconds(200));
        if (MakeCalls(group.get(), 1)) return 2;
        const std::string reason = group->Status().message();
        return reason.starts_with("rank 0 ") && reason.find("silent") == std::string::npos ? 0 : 3;
      }));
    }
    EXPECT_EQ(StatusOf(victim), -SIGKILL);
    for (const pid_t rank : survivors) EXPECT_EQ(StatusOf(rank), 0);
    FreeBoard(board);
  }
}

// A rank that leaves first must not end the last call of the others.
TEST(UcxNetworkTest, RankThatLeavesIsNoLoss) {
  for (int round = 0; round < 10; ++round) {
    Board* const board = NewBoard();
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < kMaxRanks; ++rank) {
      ranks.push_back(Start([&] {
        auto group = Join(kNetwork, board, 0, rank, kMaxRanks);
        return group != nullptr && MakeCalls(group.get(), 10 + round) ? 0 : 1;
      }));
    }
    for (const pid_t rank : ranks) EXPECT_EQ(StatusOf(rank), 0) << "round " << round;
    FreeBoard(board);
  }
}

TEST(UcxNetworkTest, UnknownDeviceIsRefused) {
  std::string why_not;
  EXPECT_EQ(UcxGroup::Open({.kind = GroupTransport::Kind::kNetwork, .devices = "none9"}, &why_not), nullptr);
  EXPECT_NE(why_not.find("none9"), std::string::npos) << why_not;
}

}  // namespace
}  // namespace quire::ucx
