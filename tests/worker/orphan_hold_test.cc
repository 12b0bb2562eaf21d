// SPDX-License-Identifier: Apache-2.0

// What the session loop keeps when a session ends, and who gets it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/worker/inventory_reader.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/recorded_session.h"
#include "tests/worker/test_worker.h"
#include "worker/session_loop.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

// A prompt of two tokens in row 0, and decode steps after it.
v1::StepPlan Plan(uint64_t step, uint64_t num_computed) {
  PlanBuilder plan(step);
  if (num_computed > 0) return plan.Slice(0, static_cast<uint32_t>(num_computed), 1, true).plan();
  return plan.Start(0, {5, 6}).WithRoot("r").WithRecord("a request").Slice(0, 0, 2, true, Blocks(0, 8)).plan();
}

class OrphanHoldTest : public ::testing::Test {
 protected:
  explicit OrphanHoldTest(absl::Duration hold = absl::Hours(1)) {
    loop_ = std::make_unique<SessionLoop>(&worker_.executor(), &stats_, /*binds_threads=*/false, nullptr,
                                          OrphanHold{.duration = hold, .layout_id = "layout"});
  }
  ~OrphanHoldTest() override {
    worker_.backend().Open();
    loop_->Stop();
  }

  std::shared_ptr<RecordedSession> Open(uint64_t epoch, bool adopts) {
    auto session = std::make_shared<RecordedSession>();
    EXPECT_EQ(loop_->Open(session, epoch, adopts), absl::OkStatus());
    return session;
  }
  void Submit(const RecordedSession& session, uint64_t step, uint64_t num_computed) {
    EXPECT_EQ(loop_->Submit(&session, Plan(step, num_computed)), absl::OkStatus());
  }
  // Opens a session of epoch 1 that has computed three tokens, and leaves it.
  void RunAndLeave() {
    const std::shared_ptr<RecordedSession> session = Open(1, false);
    Submit(*session, 1, 0);
    Submit(*session, 2, 2);
    session->Await(3);
    Leave(session);
  }
  void Leave(const std::shared_ptr<RecordedSession>& session) {
    session->End(absl::CancelledError());
    loop_->Leave(session.get());
  }
  // Opens a session that adopts, and expects that it finds nothing.
  void ExpectNothingToAdopt(uint64_t epoch) {
    const std::shared_ptr<RecordedSession> session = Open(epoch, true);
    EXPECT_EQ(session->AwaitInventory().size(), 0u);
    // Row 0 is free: no sequence has taken it.
    Submit(*session, 1, 2);
    EXPECT_EQ(session->AwaitEnd().back(), "INVALID_ARGUMENT");
  }

  TestWorker worker_;
  WorkerStats stats_;
  std::unique_ptr<SessionLoop> loop_;
};

TEST_F(OrphanHoldTest, TheNextSessionAdoptsRowsAndGoesOn) {
  RunAndLeave();
  const std::shared_ptr<RecordedSession> next = Open(2, true);
  const ReadInventory inventory = Read(next->AwaitInventory());
  EXPECT_EQ(inventory.header.epoch(), 1u);
  EXPECT_EQ(inventory.header.last_step(), 2u);
  EXPECT_EQ(inventory.header.layout_id(), "layout");
  ASSERT_EQ(inventory.results.size(), 2u);
  EXPECT_EQ(inventory.rows.at(0).record(), "a request");
  EXPECT_EQ(inventory.rows.at(0).computed_tokens(), 3u);
  ASSERT_EQ(inventory.rows.at(0).token_ids_size(), 4);
  EXPECT_EQ(inventory.results[1].result().token_ids(0), inventory.rows.at(0).token_ids(3));
  EXPECT_EQ(inventory.labels.at(0).tokens.size(), 3u);
  Submit(*next, 1, 3);
  loop_->CloseAfterPlans(next.get());
  EXPECT_THAT(next->AwaitEnd(), ElementsAre("opened 2", "result 1", "OK"));
}

// The next manager must not take the time without a manager for the time of a client.
TEST_F(OrphanHoldTest, ARowTellsTheTimeFromItsLastSliceToTheEndOfItsSession) {
  const Clock& clock = SteadyClock();
  const auto wait_us = [&clock](int64_t us) {
    const int64_t end_us = clock.NowMicros() + us;
    while (clock.NowMicros() < end_us) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  constexpr int64_t kWaitUs = 50'000;
  constexpr int64_t kHoldUs = 1'000'000;
  const int64_t before_us = clock.NowMicros();
  std::shared_ptr<RecordedSession> session = Open(1, false);
  Submit(*session, 1, 0);
  session->Await(2);
  wait_us(kWaitUs);
  loop_->CloseAfterPlans(session.get());
  session->AwaitEnd();
  const int64_t after_us = clock.NowMicros();
  wait_us(kHoldUs);
  session = Open(2, true);
  const uint32_t idle_ms = Read(session->AwaitInventory()).rows.at(0).idle_ms();
  EXPECT_GE(idle_ms, kWaitUs / 1000);
  EXPECT_LT(idle_ms, (after_us - before_us + kHoldUs) / 1000);
}

TEST_F(OrphanHoldTest, ASessionThatDoesNotAdoptDropsEverything) {
  RunAndLeave();
  const std::shared_ptr<RecordedSession> next = Open(2, false);
  EXPECT_EQ(next->AwaitInventory().size(), 0u);
  Leave(next);
  ExpectNothingToAdopt(3);
}

TEST_F(OrphanHoldTest, ASessionThatClosesItsSideLeavesItsRowsToo) {
  const std::shared_ptr<RecordedSession> session = Open(1, false);
  Submit(*session, 1, 0);
  loop_->CloseAfterPlans(session.get());
  session->AwaitEnd();
  EXPECT_EQ(Read(Open(2, true)->AwaitInventory()).header.last_step(), 1u);
}

// The stream is lost while a step runs and a plan waits. The running step counts; the plan that waits does not.
TEST_F(OrphanHoldTest, AStepThatHasBegunIsFinishedAndAPlanThatWaitsIsDropped) {
  const std::shared_ptr<RecordedSession> session = Open(1, false);
  worker_.backend().Close();
  Submit(*session, 1, 0);
  worker_.backend().AwaitStep();
  if (worker_.backend().IsAsynchronous()) GTEST_SKIP() << "both plans begin";
  Submit(*session, 2, 2);
  Leave(session);
  worker_.backend().Open();
  const ReadInventory inventory = Read(Open(2, true)->AwaitInventory());
  EXPECT_EQ(inventory.header.last_step(), 1u);
  EXPECT_EQ(inventory.rows.at(0).computed_tokens(), 2u);
  EXPECT_EQ(inventory.rows.at(0).token_ids_size(), 3);
}

TEST_F(OrphanHoldTest, AnAdoptingSessionTakesOverFromALiveOne) {
  const std::shared_ptr<RecordedSession> old_session = Open(1, false);
  worker_.backend().Close();
  Submit(*old_session, 1, 0);
  worker_.backend().AwaitStep();
  const std::shared_ptr<RecordedSession> next = Open(2, true);
  worker_.backend().Open();
  EXPECT_THAT(old_session->AwaitEnd(), ElementsAre("opened 1", "ABORTED"));
  const ReadInventory inventory = Read(next->AwaitInventory());
  // The old manager never saw this result.
  ASSERT_EQ(inventory.results.size(), 1u);
  EXPECT_EQ(inventory.results[0].result().step(), 1u);
  EXPECT_EQ(inventory.rows.at(0).token_ids_size(), 3);
  EXPECT_EQ(loop_->Submit(old_session.get(), Plan(2, 2)), absl::OkStatus()) << "it is dropped";
  Submit(*next, 1, 2);
  next->Await(2);
}

// A manager that dies while it adopts has changed nothing, so the next one finds the same results.
TEST_F(OrphanHoldTest, ASessionThatAdoptsAndRunsNothingLeavesTheSameInventory) {
  RunAndLeave();
  const std::shared_ptr<RecordedSession> second = Open(2, true);
  std::vector<v1::InventoryChunk> first_chunks = second->AwaitInventory();
  Leave(second);
  const std::shared_ptr<RecordedSession> third = Open(3, true);
  std::vector<v1::InventoryChunk> second_chunks = third->AwaitInventory();
  ASSERT_EQ(first_chunks.size(), second_chunks.size());
  for (auto* chunks : {&first_chunks, &second_chunks}) (*chunks)[0].mutable_rows(0)->clear_idle_ms();
  EXPECT_EQ(first_chunks[0].SerializeAsString(), second_chunks[0].SerializeAsString());
  Submit(*third, 1, 3);
  third->Await(2);
  Leave(third);
  const ReadInventory after_a_step = Read(Open(4, true)->AwaitInventory());
  EXPECT_EQ(after_a_step.header.epoch(), 3u);
  EXPECT_EQ(after_a_step.header.last_step(), 1u);
  EXPECT_EQ(after_a_step.results.size(), 1u);
}

TEST_F(OrphanHoldTest, NothingIsKeptAfterAStepThatFailed) {
  const std::shared_ptr<RecordedSession> session = Open(1, false);
  Submit(*session, 1, 0);
  session->Await(2);
  Submit(*session, 9, 2);  // Step 2 is missing.
  EXPECT_EQ(session->AwaitEnd().back(), "INVALID_ARGUMENT");
  ExpectNothingToAdopt(2);
}

TEST_F(OrphanHoldTest, NothingIsKeptAfterLogitsThatAreNotFiniteIfTheyEndTheSession) {
  const auto session = std::make_shared<RecordedSession>();
  ASSERT_EQ(loop_->Open(session, 1, /*adopts=*/false, /*term=*/0, {.failures = false}), absl::OkStatus());
  Submit(*session, 1, 0);
  session->Await(2);
  worker_.backend().SpoilLogits();
  Submit(*session, 2, 2);
  EXPECT_EQ(session->AwaitEnd().back(), "INTERNAL");
  const std::shared_ptr<RecordedSession> next = Open(2, true);
  EXPECT_EQ(next->AwaitInventory().size(), 0u);
}

TEST_F(OrphanHoldTest, ADrainingWorkerDoesNotWaitForASessionThatAdopts) {
  RunAndLeave();
  EXPECT_TRUE(loop_->Drain(absl::Hours(1)));
  EXPECT_EQ(loop_->Open(std::make_shared<RecordedSession>(), 2, true).code(), absl::StatusCode::kUnavailable);
}

TEST_F(OrphanHoldTest, AnOldEpochAdoptsNothing) {
  RunAndLeave();
  EXPECT_EQ(loop_->Open(std::make_shared<RecordedSession>(), 1, true).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Open(2, true)->AwaitInventory().size(), 1u);
}

class ShortOrphanHoldTest : public OrphanHoldTest {
 protected:
  ShortOrphanHoldTest() : OrphanHoldTest(absl::Milliseconds(20)) {}
};

TEST_F(ShortOrphanHoldTest, RowsAreDroppedWhenTheHoldEnds) {
  RunAndLeave();
  // An epoch that is opened too early adopts the rows and leaves them again, so the wait becomes longer each time.
  uint64_t epoch = 2;
  auto wait = std::chrono::milliseconds(40);
  for (;; wait *= 2) {
    std::this_thread::sleep_for(wait);
    const std::shared_ptr<RecordedSession> session = Open(epoch++, true);
    const bool is_dropped = session->AwaitInventory().empty();
    Leave(session);
    if (is_dropped) break;
  }
  ExpectNothingToAdopt(epoch);
}

class NoOrphanHoldTest : public OrphanHoldTest {
 protected:
  NoOrphanHoldTest() : OrphanHoldTest(absl::ZeroDuration()) {}
};

TEST_F(NoOrphanHoldTest, NothingIsKeptOrLabelled) {
  RunAndLeave();
  EXPECT_EQ(worker_.executor().labels(), nullptr);
  ExpectNothingToAdopt(2);
}

}  // namespace
}  // namespace quire
