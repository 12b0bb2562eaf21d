// SPDX-License-Identifier: Apache-2.0

// Tests what a rank does with NCCL, without NCCL: which library it refuses, and when a communicator is made, ended and
// aborted. The ranks are threads.

#include "kernels/cuda/nccl_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/nccl_library.h"
#include "kernels/local_group.h"

namespace quire::cuda {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNeeded[] =
    "; ranks on GPUs need NCCL 2.14.0 or newer: install libnccl2 of NVIDIA or nvidia-nccl of Python, and name its "
    "folder in LD_LIBRARY_PATH";

std::string WhyNot(const std::string& name) {
  std::string why_not;
  EXPECT_EQ(nccl::Open(name, &why_not), nullptr);
  return why_not;
}

TEST(NcclLibraryTest, AMissingLibraryIsSaidWithTheLeastVersion) {
  EXPECT_THAT(WhyNot("libnccl_missing.so.2"),
              AllOf(StartsWith("libnccl_missing.so.2 cannot be loaded: "), EndsWith(kNeeded)));
}

TEST(NcclLibraryTest, AnOldVersionIsNamed) {
  setenv("QUIRE_TEST_NCCL_VERSION", "2804", 1);
  EXPECT_EQ(WhyNot(QUIRE_OLD_NCCL), std::string(QUIRE_OLD_NCCL) + " is NCCL 2.8.4" + kNeeded);
  setenv("QUIRE_TEST_NCCL_VERSION", "21304", 1);
  EXPECT_EQ(WhyNot(QUIRE_OLD_NCCL), std::string(QUIRE_OLD_NCCL) + " is NCCL 2.13.4" + kNeeded);
}

TEST(NcclLibraryTest, AMissingFunctionIsNamed) {
  setenv("QUIRE_TEST_NCCL_VERSION", "21400", 1);
  EXPECT_EQ(WhyNot(QUIRE_OLD_NCCL),
            std::string(QUIRE_OLD_NCCL) + " is NCCL 2.14.0 without the function ncclGetUniqueId");
}

TEST(NcclLibraryTest, AnotherLibraryIsNoNccl) {
  EXPECT_EQ(WhyNot(QUIRE_OTHER_LIBRARY),
            std::string(QUIRE_OTHER_LIBRARY) + " is not NCCL: it has no function ncclGetVersion" + kNeeded);
}

// What the ranks have called, and what the calls answer.
struct Calls {
  std::atomic<int> init_result = nccl::kInProgress;
  std::atomic<int> call_result = nccl::kInProgress;  // Of ncclAllGather and ncclAllReduce.
  std::atomic<int> error = nccl::kSuccess;           // Of ncclCommGetAsyncError.
  std::atomic<int> num_inits = 0, num_gathers = 0, num_reductions = 0, num_finalized = 0, num_destroyed = 0,
                   num_aborted = 0;
  std::atomic<bool> has_other_id = false;
};
Calls* g_calls = nullptr;

// A library whose communicators do nothing.
nccl::Library StandIn() {
  return {
      .version = 23203,
      .get_unique_id =
          [](nccl::UniqueId* id) {
            std::memset(id->bytes, 7, sizeof(id->bytes));
            return nccl::kSuccess;
          },
      .comm_init_rank_config =
          [](nccl::Comm* comm, int, nccl::UniqueId id, int, nccl::Config* config) {
            static int any = 0;
            EXPECT_EQ(config->size, sizeof(nccl::Config));
            EXPECT_EQ(config->blocking, 0);
            for (const char byte : id.bytes) g_calls->has_other_id = g_calls->has_other_id || byte != 7;
            const auto result = static_cast<nccl::Result>(g_calls->init_result.load());
            ++g_calls->num_inits;
            const bool is_made = result == nccl::kSuccess || result == nccl::kInProgress;
            *comm = is_made ? &any : nullptr;
            return result;
          },
      .comm_get_async_error =
          [](nccl::Comm, nccl::Result* error) {
            *error = static_cast<nccl::Result>(g_calls->error.load());
            return nccl::kSuccess;
          },
      .comm_finalize =
          [](nccl::Comm) {
            ++g_calls->num_finalized;
            return nccl::kInProgress;
          },
      .comm_destroy =
          [](nccl::Comm) {
            ++g_calls->num_destroyed;
            return nccl::kSuccess;
          },
      .comm_abort =
          [](nccl::Comm) {
            ++g_calls->num_aborted;
            return nccl::kSuccess;
          },
      .all_gather =
          [](const void*, void*, size_t count, nccl::DataType type, nccl::Comm, nccl::Stream) {
            EXPECT_EQ(count, 12u);
            EXPECT_EQ(type, nccl::kUint8);
            ++g_calls->num_gathers;
            return static_cast<nccl::Result>(g_calls->call_result.load());
          },
      .all_reduce =
          [](const void*, void*, size_t count, nccl::DataType type, nccl::Operation operation, nccl::Comm,
             nccl::Stream) {
            EXPECT_EQ(count, 3u);
            EXPECT_EQ(type, nccl::kFloat32);
            EXPECT_EQ(operation, nccl::kSum);
            ++g_calls->num_reductions;
            return static_cast<nccl::Result>(g_calls->call_result.load());
          },
      .get_error_string = [](nccl::Result) { return "an error"; },
      .get_last_error = [](nccl::Comm) { return "the last one"; },
  };
}

class NcclGroupTest : public testing::Test {
 protected:
  NcclGroupTest() { g_calls = &calls_; }

  // Joins with both ranks. Rank 1 has `version`.
  void Join(int version = 23203) {
    libraries_[1].version = version;
    ForRanks([&](int rank) {
      groups_[rank] = NcclGroup::Join(&libraries_[rank], local_.collective(rank), nullptr, &why_not_[rank]);
    });
  }
  void ForRanks(const std::function<void(int rank)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) threads.emplace_back([&, rank] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }
  // Waits for what another thread does.
  bool Becomes(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!is_so() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return is_so();
  }

  Calls calls_;
  nccl::Library libraries_[2] = {StandIn(), StandIn()};
  LocalGroup local_{2};
  std::unique_ptr<NcclGroup> groups_[2];
  std::string why_not_[2];
};

TEST_F(NcclGroupTest, RanksConnectWithTheIdOfRank0AndPart) {
  Join();
  ASSERT_NE(groups_[0], nullptr) << why_not_[0];
  ASSERT_NE(groups_[1], nullptr) << why_not_[1];
  EXPECT_EQ(calls_.num_inits, 2);
  EXPECT_FALSE(calls_.has_other_id);
  ForRanks([&](int rank) {
    groups_[rank]->AllGather(nullptr, 12, nullptr);
    groups_[rank]->AllReduce(nullptr, 3, nullptr);
    groups_[rank].reset();
  });
  EXPECT_EQ(calls_.num_gathers, 2);
  EXPECT_EQ(calls_.num_reductions, 2);
  EXPECT_EQ(calls_.num_finalized, 2);
  EXPECT_EQ(calls_.num_destroyed, 2);
  EXPECT_EQ(calls_.num_aborted, 0);
}

TEST_F(NcclGroupTest, OtherVersionsAreNamed) {
  Join(/*version=*/22005);
  EXPECT_EQ(groups_[0], nullptr);
  EXPECT_EQ(why_not_[0], "rank 0 has NCCL 2.32.3, and rank 1 has 2.20.5");
  EXPECT_EQ(why_not_[1], why_not_[0]);
  EXPECT_EQ(calls_.num_inits, 0);
}

TEST_F(NcclGroupTest, AConnectionThatFailsEndsTheGroup) {
  calls_.init_result = 2;
  Join();
  EXPECT_EQ(groups_[1], nullptr);
  EXPECT_EQ(why_not_[1], "rank 1: ncclCommInitRankConfig of NCCL 2.32.3: an error: the last one");
  EXPECT_FALSE(local_.collective(1)->Status().ok());
  EXPECT_EQ(calls_.num_aborted, 0) << "there is nothing to abort";
}

TEST_F(NcclGroupTest, AConnectionThatFailsLaterIsAborted) {
  calls_.error = 6;
  Join();
  EXPECT_EQ(groups_[0], nullptr);
  EXPECT_THAT(why_not_[0], StartsWith("rank 0: ncclComm"));
  EXPECT_EQ(calls_.num_aborted, 2);
}

// A peer that is lost never connects.
TEST_F(NcclGroupTest, AConnectionEndsWithTheGroup) {
  calls_.error = nccl::kInProgress;
  std::thread watcher([&] {
    EXPECT_TRUE(Becomes([&] { return calls_.num_inits == 2; }));
    for (int rank = 0; rank < 2; ++rank) local_.collective(rank)->Abort(BackendStatus::Error("rank 5 is lost"));
  });
  Join();
  watcher.join();
  EXPECT_EQ(groups_[0], nullptr);
  EXPECT_EQ(why_not_[0], "rank 5 is lost");
  EXPECT_EQ(calls_.num_aborted, 2);
}

// Exchanges of a dead peer are on the stream, and nobody calls the group.
TEST_F(NcclGroupTest, TheEndOfTheGroupAbortsTheCommunicator) {
  Join();
  local_.collective(1)->Abort(BackendStatus::Error("rank 0 is lost"));
  EXPECT_TRUE(Becomes([&] { return calls_.num_aborted == 1; }));
  groups_[1]->AllGather(nullptr, 12, nullptr);
  EXPECT_EQ(calls_.num_gathers, 0);
  groups_[1].reset();
  EXPECT_EQ(calls_.num_aborted, 1);
  EXPECT_EQ(calls_.num_finalized, 0) << "nobody would answer";
}

TEST_F(NcclGroupTest, AnErrorOfNcclEndsTheGroup) {
  Join();
  calls_.error = 1;
  EXPECT_TRUE(Becomes([&] { return !local_.collective(0)->Status().ok() && calls_.num_aborted == 2; }));
  EXPECT_EQ(local_.collective(0)->Status().message(),
            "rank 0: ncclCommGetAsyncError of NCCL 2.32.3: an error: the last one");
}

TEST_F(NcclGroupTest, ACallThatIsNeverDoneEndsWithTheGroup) {
  Join();
  calls_.error = nccl::kInProgress;
  std::thread watcher([&] {
    EXPECT_TRUE(Becomes([&] { return calls_.num_gathers == 1; }));
    local_.collective(0)->Abort(BackendStatus::Error("rank 1 is lost"));
  });
  groups_[0]->AllGather(nullptr, 12, nullptr);
  watcher.join();
  groups_[0].reset();
  EXPECT_EQ(calls_.num_aborted, 1);
  local_.collective(1)->Abort(BackendStatus::Error("rank 0 is lost"));
}

TEST_F(NcclGroupTest, ARankThatWaitsForTheOthersAtTheEndLeavesWithTheGroup) {
  Join();
  calls_.error = nccl::kInProgress;
  std::thread watcher([&] {
    EXPECT_TRUE(Becomes([&] { return calls_.num_finalized == 2; }));
    for (int rank = 0; rank < 2; ++rank) local_.collective(rank)->Abort(BackendStatus::Error("the session is over"));
  });
  ForRanks([&](int rank) { groups_[rank].reset(); });
  watcher.join();
  EXPECT_EQ(calls_.num_destroyed, 0);
  EXPECT_EQ(calls_.num_aborted, 2);
}

}  // namespace
}  // namespace quire::cuda
