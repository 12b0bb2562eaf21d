// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/local_group.h"
#include "tests/kernels/collective_calls.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBeat(50);
// A rank leaves a group when it has not heard of a peer for this time.
constexpr milliseconds kSilence(1000);
// All other ranks have left at this time.
constexpr milliseconds kLongestLeave(1200);

TEST(LocalGroupTest, EveryRankGetsWhatTheOthersSend) {
  for (const int size : {1, 2, 3, 4, 8}) {
    LocalGroup group(size);
    std::atomic<bool> is_right = true;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        for (int call = 0; call < 200; ++call) {
          if (!Exchange(group.collective(rank), call, &is_right)) is_right = false;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(is_right) << size << " ranks";
  }
}

TEST(LocalGroupTest, OtherNumbersOfBytesEndTheGroup) {
  LocalGroup group(2);
  std::array<char, 2> from = {}, to = {};
  std::thread other([&] { group.collective(1)->AllGather(from.data(), 1, to.data()); });
  std::array<char, 4> received = {};
  EXPECT_FALSE(group.collective(0)->AllGather(from.data(), 2, received.data()));
  EXPECT_EQ(group.collective(0)->Status().message(), "rank 1 sends 1 bytes, and this rank 2");
  group.collective(1)->Abort(BackendStatus::Error("the test ends"));
  other.join();
}

TEST(LocalGroupTest, FirstReasonOfAnAbortStays) {
  LocalGroup group(2);
  Collective& rank = *group.collective(0);
  EXPECT_TRUE(rank.Status().ok());
  rank.Abort(BackendStatus::Error("rank 1 is silent"));
  rank.Abort(BackendStatus::Error("the session has ended"));
  EXPECT_EQ(rank.Status().message(), "rank 1 is silent");
  char byte = 0;
  std::array<char, 2> received = {};
  EXPECT_FALSE(rank.AllGather(&byte, 1, received.data()));
  EXPECT_TRUE(group.collective(1)->Status().ok()) << "a rank ends alone";
}

TEST(LoopbackCollectiveTest, EveryRankSeemsToSendTheSame) {
  LoopbackCollective alone(1, 2);
  const std::array<char, 4> from = {'a', 'b', 'c', 'd'};
  std::array<char, 4> to = {};
  EXPECT_TRUE(alone.AllGather(from.data(), 2, to.data()));
  EXPECT_EQ(std::string(to.data(), 4), "abab");
  EXPECT_TRUE(alone.AllToAll(from.data(), 2, to.data()));
  EXPECT_EQ(std::string(to.data(), 4), "cdcd");
}

enum class Fault { kKilled, kStopped, kCutOff };

// A group of threads of which one gets into trouble at a drawn point. Every rank beats for the others and ends the
// group on its side when it has not heard of one of them, as the ranks of workers do.
class TroubledGroup {
 public:
  explicit TroubledGroup(uint32_t seed)
      : random_(seed),
        size_(2 + static_cast<int>(random_() % 3)),
        victim_(static_cast<int>(random_() % size_)),
        fault_(static_cast<Fault>(random_() % 3)),
        fault_call_(static_cast<int>(random_() % 100)),
        ranks_(size_),
        group_(size_) {
    for (Rank& rank : ranks_) rank.last_beat = Clock::now();
    for (int rank = 0; rank < size_; ++rank) {
      ranks_[rank].thread = std::thread([this, rank] { Run(rank); });
      ranks_[rank].watch = std::thread([this, rank] { Watch(rank); });
    }
  }

  // Returns whether the last Finish found a rank that was late, and nothing else.
  bool was_only_late() const { return was_only_late_; }

  // Waits for all ranks. Returns what is wrong, or an empty string.
  std::string Finish() {
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != victim_ || fault_ == Fault::kCutOff) ranks_[rank].thread.join();
    }
    is_over_ = true;
    if (fault_ != Fault::kCutOff) ranks_[victim_].thread.join();
    for (Rank& rank : ranks_) rank.watch.join();
    std::string wrong, late;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == victim_ && fault_ != Fault::kCutOff) continue;
      // What a busy machine adds does not count.
      const auto took = std::chrono::duration_cast<milliseconds>(ranks_[rank].left - trouble_.load() - delay_.load());
      const std::string name = " rank " + std::to_string(rank);
      if (took > kLongestLeave) late += name + " left after " + std::to_string(took.count()) + " ms;";
      const std::string reason = group_.collective(rank)->Status().message();
      const bool names_victim = reason == "rank " + std::to_string(victim_) + " is silent";
      const bool names_any = rank == victim_ && reason.ends_with(" is silent");
      if (!names_victim && !names_any) wrong += name + " left because '" + reason + "';";
    }
    if (!is_right_) wrong += " a word is wrong;";
    wrong += NextGroup();
    was_only_late_ = wrong.empty() && !late.empty();
    return wrong + late;
  }

 private:
  struct Rank {
    std::thread thread;
    std::thread watch;
    std::atomic<Clock::time_point> last_beat;
    Clock::time_point left;
  };

  void Run(int rank) {
    Collective* const collective = group_.collective(rank);
    for (int call = 0;; ++call) {
      if (rank == victim_ && call == fault_call_) {
        trouble_ = Clock::now();
        is_in_trouble_ = true;
        // One that is killed makes no more calls. One that is stopped makes none before the others have left. One that
        // is cut off sends in vain until its own watch ends the group.
        while (fault_ == Fault::kStopped && !is_over_) std::this_thread::sleep_for(milliseconds(1));
        while (fault_ == Fault::kCutOff && collective->Status().ok()) std::this_thread::sleep_for(milliseconds(1));
        break;
      }
      if (!Exchange(collective, call, &is_right_)) break;
    }
    ranks_[rank].left = Clock::now();
  }

  void Watch(int rank) {
    auto last = Clock::now();
    while (!is_over_) {
      const auto now = Clock::now();
      delay_ = std::max(delay_.load(), now - last - kBeat);
      last = now;
      const bool is_cut_off = is_in_trouble_ && fault_ == Fault::kCutOff;
      if (rank != victim_ || !is_in_trouble_) ranks_[rank].last_beat = now;
      for (int peer = 0; peer < size_; ++peer) {
        const bool is_heard = rank != victim_ || !is_cut_off;
        const auto heard = is_heard ? ranks_[peer].last_beat.load() : trouble_.load();
        if (peer == rank || now - heard <= kSilence) continue;
        group_.collective(rank)->Abort(BackendStatus::Error("rank " + std::to_string(peer) + " is silent"));
      }
      std::this_thread::sleep_for(kBeat);
    }
  }

  // The survivors and a new rank make another group. Returns what is wrong.
  std::string NextGroup() {
    LocalGroup next(size_);
    std::atomic<bool> is_right = true;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        for (int call = 0; call < 5; ++call) {
          if (!Exchange(next.collective(rank), call, &is_right)) is_right = false;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return is_right ? "" : " the next group does not work;";
  }

  std::mt19937 random_;
  const int size_;
  const int victim_;
  const Fault fault_;
  const int fault_call_;
  std::vector<Rank> ranks_;
  LocalGroup group_;
  std::atomic<bool> is_right_ = true;
  std::atomic<bool> is_in_trouble_ = false;
  std::atomic<bool> is_over_ = false;
  std::atomic<Clock::time_point> trouble_;
  bool was_only_late_ = false;
  std::atomic<Clock::duration> delay_ = Clock::duration(0);  // By which a watch has been late.
};

TEST(LocalGroupTest, OthersLeaveWhenARankIsLostAndMakeANewGroup) {
  constexpr int kGroupsAtOnce = 25;
  for (uint32_t first = 0; first < 200; first += kGroupsAtOnce) {
    std::vector<std::unique_ptr<TroubledGroup>> groups;
    for (uint32_t i = 0; i < kGroupsAtOnce; ++i) groups.push_back(std::make_unique<TroubledGroup>(first + i));
    for (uint32_t i = 0; i < kGroupsAtOnce; ++i) {
      std::string wrong = groups[i]->Finish();
      // A busy machine makes a rank late now and then, but hardly twice at the same point.
      if (groups[i]->was_only_late()) wrong = TroubledGroup(first + i).Finish();
      EXPECT_EQ(wrong, "") << "seed " << first + i;
    }
  }
}

}  // namespace
}  // namespace quire
