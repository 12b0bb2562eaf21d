// SPDX-License-Identifier: Apache-2.0

// Two ranks of a model behind session loops, whose collective is memory of this process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "kernels/local_group.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/recorded_session.h"
#include "tests/worker/test_worker.h"
#include "worker/rank_group.h"
#include "worker/session_loop.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr int kRanks = 2;
constexpr std::chrono::milliseconds kPatience(300);

// Where collectives meet: those that name the same addresses are a group.
class MeetingPlace {
 public:
  std::string NewAddress() {
    const MutexLock lock(&mutex_);
    return absl::StrCat("address ", ++num_addresses_);
  }
  LocalGroup* GroupOf(const std::vector<std::string>& addresses) {
    const MutexLock lock(&mutex_);
    std::unique_ptr<LocalGroup>& group = groups_[addresses];
    if (group == nullptr) group = std::make_unique<LocalGroup>(static_cast<int>(addresses.size()));
    return group.get();
  }

 private:
  Mutex mutex_;
  int num_addresses_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::map<std::vector<std::string>, std::unique_ptr<LocalGroup>> groups_ QUIRE_GUARDED_BY(mutex_);
};

class LocalCollective : public SessionCollective {
 public:
  explicit LocalCollective(MeetingPlace* place) : place_(*place), address_(place->NewAddress()) {}

  int rank() const override { return member()->rank(); }
  int size() const override { return member()->size(); }
  const std::string& address() const override { return address_; }
  bool Join(int rank, const std::vector<std::string>& addresses, const GroupKey& key) override {
    {
      const MutexLock lock(&mutex_);
      member_ = place_.GroupOf(addresses)->collective(rank);
      if (!early_.ok()) member_->Abort(early_);
    }
    std::vector<GroupKey> keys(addresses.size());
    return AllGather(key.data(), sizeof(key), keys.data());
  }
  bool AllGather(const void* from, size_t bytes, void* to) override { return member()->AllGather(from, bytes, to); }
  bool AllToAll(const void* from, size_t bytes, void* to) override { return member()->AllToAll(from, bytes, to); }
  void Abort(const BackendStatus& reason) override {
    const MutexLock lock(&mutex_);
    if (member_ != nullptr) return member_->Abort(reason);
    early_ = reason;
  }
  BackendStatus Status() const override { return member()->Status(); }

 private:
  Collective* member() const {
    const MutexLock lock(&mutex_);
    return member_;
  }

  MeetingPlace& place_;
  const std::string address_;
  mutable Mutex mutex_;
  Collective* member_ QUIRE_GUARDED_BY(mutex_) = nullptr;  // Null before Join.
  BackendStatus early_ QUIRE_GUARDED_BY(mutex_) = BackendStatus::Ok();
};

// A session that also keeps the results.
class RankSession : public RecordedSession {
 public:
  void SendResult(v1::StepResult result) override {
    result.clear_duration_us();
    {
      const MutexLock lock(&results_mutex_);
      results_.push_back(result);
    }
    RecordedSession::SendResult(std::move(result));
  }
  std::vector<v1::StepResult> results() {
    const MutexLock lock(&results_mutex_);
    return results_;
  }

 private:
  Mutex results_mutex_;
  std::vector<v1::StepResult> results_ QUIRE_GUARDED_BY(results_mutex_);
};

v1::StepPlan Plan(uint64_t step, uint64_t num_computed) {
  PlanBuilder plan(step);
  if (num_computed > 0) return plan.Slice(0, static_cast<uint32_t>(num_computed), 1, true).plan();
  return plan.Start(0, {5, 6}).WithRoot("r").WithRecord("a request").Slice(0, 0, 2, true, Blocks(0, 8)).plan();
}

TestWorkerOptions OptionsOf(int rank) {
  TestWorkerOptions options;
  options.rank = rank;
  options.num_ranks = kRanks;
  // Pools of ranks may differ, and what they keep counts as the same.
  options.num_blocks += static_cast<uint32_t>(rank);
  return options;
}

// One rank: a model, its group and its loop.
struct Rank {
  Rank(int rank, MeetingPlace* place)
      : worker(OptionsOf(rank)),
        group(
            {.group_id = "g", .rank = rank, .size = kRanks},
            [place](std::string*) { return std::make_unique<LocalCollective>(place); }, kPatience) {
    loop = std::make_unique<SessionLoop>(&worker.executor(), &stats, /*binds_threads=*/false, nullptr,
                                         OrphanHold{.duration = absl::Hours(1), .layout_id = "layout"}, &group);
  }

  TestWorker worker;
  WorkerStats stats;
  RankGroup group;
  std::unique_ptr<SessionLoop> loop;
};

class RankSessionTest : public ::testing::Test {
 protected:
  RankSessionTest() {
    for (int rank = 0; rank < kRanks; ++rank) ranks_.push_back(std::make_unique<Rank>(rank, &place_));
    sessions_.resize(kRanks);
  }
  ~RankSessionTest() override {
    for (const auto& rank : ranks_) rank->loop->Stop();
  }

  // What a manager learns from descriptions.
  v1::SessionGroup Describe() {
    v1::SessionGroup group;
    for (const auto& rank : ranks_) {
      while (!rank->group.TransportAddress().ok()) std::this_thread::yield();
      group.add_transport_addresses(*rank->group.TransportAddress());
    }
    group.set_key(std::string(32, 'k'));
    return group;
  }
  void Open(uint64_t epoch, bool adopts) {
    const v1::SessionGroup group = Describe();
    for (int rank = 0; rank < kRanks; ++rank) {
      sessions_[rank] = std::make_shared<RankSession>();
      EXPECT_EQ(ranks_[rank]->loop->Open(sessions_[rank], epoch, adopts, /*term=*/0, {}, group), absl::OkStatus());
    }
    for (const auto& session : sessions_) session->Await(1);
  }
  void Submit(int rank, uint64_t step, uint64_t num_computed) {
    EXPECT_EQ(ranks_[rank]->loop->Submit(sessions_[rank].get(), Plan(step, num_computed)), absl::OkStatus());
  }
  void SubmitToAll(uint64_t step, uint64_t num_computed) {
    for (int rank = 0; rank < kRanks; ++rank) Submit(rank, step, num_computed);
  }
  void Leave(int rank) {
    sessions_[rank]->End(absl::CancelledError());
    ranks_[rank]->loop->Leave(sessions_[rank].get());
  }
  // Opens a session that adopts, and expects that both have kept the same rows after this step.
  void ExpectAdoption(uint64_t epoch, uint64_t last_step) {
    Open(epoch, /*adopts=*/true);
    std::vector<v1::InventoryHeader> headers;
    for (const auto& session : sessions_) {
      const std::vector<v1::InventoryChunk> inventory = session->AwaitInventory();
      ASSERT_FALSE(inventory.empty());
      headers.push_back(inventory[0].header());
    }
    EXPECT_EQ(headers[0].num_rows(), 1u);
    EXPECT_EQ(headers[1].num_rows(), 0u);
    for (const v1::InventoryHeader& header : headers) {
      EXPECT_EQ(header.last_step(), last_step);
      EXPECT_EQ(header.digest(), headers[0].digest());
      EXPECT_NE(header.digest(), 0u);
    }
  }

  MeetingPlace place_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::shared_ptr<RankSession>> sessions_;
};

TEST_F(RankSessionTest, RanksGiveTheResultsOfOneWorkerAndTheirDigests) {
  TestWorker alone;
  Open(1, /*adopts=*/false);
  for (uint64_t step = 1; step <= 4; ++step) {
    SubmitToAll(step, step == 1 ? 0 : step);
    for (const auto& session : sessions_) session->Await(1 + step);
    v1::StepResult expected = *alone.Run(Plan(step, step == 1 ? 0 : step));
    expected.clear_duration_us();
    v1::StepResult first = sessions_[0]->results().back();
    v1::StepResult second = sessions_[1]->results().back();
    EXPECT_NE(first.digest(), 0u);
    EXPECT_EQ(first.digest(), second.digest());
    EXPECT_EQ(second.token_ids_size(), 0);
    first.clear_digest();
    EXPECT_EQ(first.SerializeAsString(), expected.SerializeAsString());
  }
}

TEST_F(RankSessionTest, TimesOfExchangesAreCounted) {
  const auto start = std::chrono::steady_clock::now();
  Open(1, /*adopts=*/false);
  for (uint64_t step = 1; step <= 3; ++step) {
    Submit(0, step, step == 1 ? 0 : step);
    if (step == 3) std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Rank 0 waits for the plan of rank 1.
    Submit(1, step, step == 1 ? 0 : step);
    for (const auto& session : sessions_) session->Await(1 + step);
  }
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start;
  for (const auto& rank : ranks_) {
    const WorkerStatsSnapshot stats = rank->stats.Snapshot();
    EXPECT_EQ(stats.plan_exchanges.count, 3);
    EXPECT_GT(stats.step_exchanges.count, 6);
    EXPECT_EQ(stats.step_exchanges.count % 3, 0) << "every step has as many";
    EXPECT_GT(stats.step_exchanges.seconds, 0);
    EXPECT_LT(stats.step_exchanges.seconds + stats.plan_exchanges.seconds, all.count());
  }
  EXPECT_GE(ranks_[0]->stats.Snapshot().plan_exchanges.seconds, 0.05);
}

TEST_F(RankSessionTest, PlanThatOneRankHasNotGotIsNotBegun) {
  Open(1, /*adopts=*/false);
  SubmitToAll(1, 0);
  for (const auto& session : sessions_) session->Await(2);
  Submit(0, 2, 2);  // The manager is killed between the two sends.
  Leave(1);
  EXPECT_THAT(sessions_[0]->AwaitEnd(), ElementsAre("opened 1", "result 1", "UNAVAILABLE"));
  ExpectAdoption(2, /*last_step=*/1);
  SubmitToAll(1, 2);
  for (const auto& session : sessions_) session->Await(2);
  EXPECT_EQ(sessions_[0]->results().back().digest(), sessions_[1]->results().back().digest());
}

TEST_F(RankSessionTest, PlanThatAllHaveGotIsExecutedThoughTheSessionEnds) {
  Open(1, /*adopts=*/false);
  SubmitToAll(1, 0);
  for (const auto& session : sessions_) session->Await(2);
  Submit(0, 2, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // Rank 0 has told that it has the plan.
  Leave(0);
  Submit(1, 2, 2);
  sessions_[1]->Await(3);
  Leave(1);
  ExpectAdoption(2, /*last_step=*/2);
}

TEST_F(RankSessionTest, DifferentPlansEndTheSessionAndKeepRows) {
  Open(1, /*adopts=*/false);
  SubmitToAll(1, 0);
  for (const auto& session : sessions_) session->Await(2);
  Submit(0, 2, 2);
  v1::StepPlan other = Plan(2, 2);
  other.set_slice_samples(std::string(1, '\0'));
  EXPECT_EQ(ranks_[1]->loop->Submit(sessions_[1].get(), other), absl::OkStatus());
  for (const auto& session : sessions_) {
    EXPECT_THAT(session->AwaitEnd(), ElementsAre("opened 1", "result 1", "INVALID_ARGUMENT"));
  }
  ExpectAdoption(2, /*last_step=*/1);
}

TEST_F(RankSessionTest, RankWhosePeerIsLostGivesUpAfterItsSessionAndServesAgain) {
  Open(1, /*adopts=*/false);
  SubmitToAll(1, 0);
  for (const auto& session : sessions_) session->Await(2);
  Submit(0, 2, 2);  // Rank 1 says nothing any more.
  Leave(0);         // The manager has noticed that.
  const v1::SessionGroup group = Describe();
  sessions_[0] = std::make_shared<RankSession>();
  EXPECT_EQ(ranks_[0]->loop->Open(sessions_[0], 2, /*adopts=*/true, 0, {}, group), absl::OkStatus());
  Leave(1);
  sessions_[1] = std::make_shared<RankSession>();
  EXPECT_EQ(ranks_[1]->loop->Open(sessions_[1], 2, /*adopts=*/true, 0, {}, group), absl::OkStatus());
  for (const auto& session : sessions_) {
    session->Await(1);
    EXPECT_EQ(session->AwaitInventory().at(0).header().last_step(), 1u);
  }
}

TEST_F(RankSessionTest, AddressOfAnEarlierSessionIsRefused) {
  const v1::SessionGroup group = Describe();
  Open(1, /*adopts=*/false);
  const absl::Status status = ranks_[0]->loop->Open(std::make_shared<RankSession>(), 2, false, 0, {}, group);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  const absl::Status alone = ranks_[0]->loop->Open(std::make_shared<RankSession>(), 2);
  EXPECT_EQ(alone.code(), absl::StatusCode::kInvalidArgument) << alone;
  SubmitToAll(1, 0);  // The session is not disturbed.
  for (const auto& session : sessions_) session->Await(2);
}

}  // namespace
}  // namespace quire
