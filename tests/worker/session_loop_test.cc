// SPDX-License-Identifier: Apache-2.0

// The session loop without gRPC: its thread against threads of callers. The sanitizers run these tests.
#include "worker/session_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/recorded_session.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The first plan starts a sequence of two tokens; each later one decodes a token.
v1::StepPlan Plan(uint64_t step) {
  PlanBuilder plan(step);
  if (step == 1) return plan.Start(0, {5, 6}).Slice(0, 0, 2, true, Blocks(0, 8)).plan();
  return plan.Slice(0, static_cast<uint32_t>(step), 1, true, Blocks(0, 8)).plan();
}

class SessionLoopTest : public ::testing::Test {
 protected:
  ~SessionLoopTest() override {
    worker_.backend().Open();
    loop_.Stop();
  }

  std::shared_ptr<RecordedSession> OpenSession(uint64_t epoch) {
    auto session = std::make_shared<RecordedSession>();
    EXPECT_EQ(loop_.Open(session, epoch), absl::OkStatus());
    return session;
  }
  void Submit(const RecordedSession& session, uint64_t step) {
    EXPECT_EQ(loop_.Submit(&session, Plan(step)), absl::OkStatus());
  }

  TestWorker worker_;
  WorkerStats stats_;
  std::vector<bool> refusals_;  // The calls of on_refused.
  SessionLoop loop_{&worker_.executor(), &stats_, /*binds_threads=*/false,
                    [this](bool is_refused) { refusals_.push_back(is_refused); }};
};

TEST_F(SessionLoopTest, PlansAreAnsweredInOrderWhileOthersReadTheState) {
  constexpr uint64_t kNumSteps = 10;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    int64_t last_steps = 0;
    while (!is_over) {
      const WorkerStatsSnapshot stats = stats_.Snapshot();
      EXPECT_GE(stats.steps, last_steps);
      last_steps = stats.steps;
      EXPECT_LE(loop_.last_epoch(), 7u);
      EXPECT_FALSE(loop_.is_draining());
      std::this_thread::yield();
    }
  });
  const std::shared_ptr<RecordedSession> session = OpenSession(7);
  std::vector<std::string> expected = {"opened 7"};
  for (uint64_t step = 1; step <= kNumSteps; ++step) {
    Submit(*session, step);
    session->Await(step);  // The greeting and all results but the last, so two plans are unanswered at most.
    expected.push_back(absl::StrCat("result ", step));
  }
  EXPECT_TRUE(loop_.has_session());
  loop_.CloseAfterPlans(session.get());
  expected.push_back("OK");
  EXPECT_EQ(session->AwaitEnd(), expected);
  EXPECT_FALSE(loop_.has_session());
  is_over = true;
  reader.join();
  EXPECT_EQ(stats_.Snapshot().steps, static_cast<int64_t>(kNumSteps));
}

TEST_F(SessionLoopTest, AnEpochFarAheadOfTheClockIsRefusedAndTheWorkerStaysUsable) {
  const uint64_t now_ms = absl::ToUnixMillis(absl::Now());
  constexpr uint64_t kHourMs = 60 * 60 * 1000;
  for (const uint64_t epoch : {UINT64_MAX, now_ms + 25 * kHourMs}) {
    const absl::Status status = loop_.Open(std::make_shared<RecordedSession>(), epoch);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("epoch is ", epoch, ", it must be at most ")));
  }
  EXPECT_EQ(loop_.last_epoch(), 0u);
  EXPECT_FALSE(loop_.has_session());
  OpenSession(now_ms + 23 * kHourMs)->Await(1);
}

TEST_F(SessionLoopTest, AManagerWhoseTermIsOverIsRefusedWhateverItsEpoch) {
  const auto open = [&](uint64_t epoch, uint64_t term) {
    return loop_.Open(std::make_shared<RecordedSession>(), epoch, /*adopts=*/false, term);
  };
  EXPECT_EQ(open(1, 0), absl::OkStatus());
  EXPECT_EQ(open(2, 7), absl::OkStatus());
  for (const uint64_t old_term : {uint64_t{0}, uint64_t{6}}) {
    const absl::Status status = open(9, old_term);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("term is ", old_term, ", it must be at least the greatest one seen, 7")));
    EXPECT_EQ(ReasonOf(status)->word, kStaleTerm);
  }
  EXPECT_EQ(loop_.last_epoch(), 2u);
  EXPECT_EQ(stats_.Snapshot().stale_terms, 2);
  EXPECT_EQ(open(3, 7), absl::OkStatus()) << "the same leader connects again";
  EXPECT_EQ(open(4, 8), absl::OkStatus());
  EXPECT_FALSE(open(5, 7).ok());
}

TEST_F(SessionLoopTest, ARefusedWorkerIsRefusedUntilASessionIsOpened) {
  loop_.Refuse("another protocol");
  loop_.Refuse("a bad tokenizer");
  EXPECT_EQ(refusals_, std::vector<bool>{true});
  EXPECT_TRUE(stats_.Snapshot().is_refused);
  const std::shared_ptr<RecordedSession> session = OpenSession(1);
  EXPECT_EQ(refusals_, (std::vector<bool>{true, false}));
  EXPECT_FALSE(stats_.Snapshot().is_refused);
  loop_.Refuse("of another manager");
  EXPECT_EQ(refusals_.size(), 2u) << "a worker with a session is in use";
  loop_.Leave(session.get());
  loop_.Refuse("");
  EXPECT_TRUE(stats_.Snapshot().is_refused) << "a refusal without a reason is a refusal, too";
}

TEST_F(SessionLoopTest, AThirdUnansweredPlanIsRefused) {
  const std::shared_ptr<RecordedSession> session = OpenSession(1);
  worker_.backend().Close();
  Submit(*session, 1);
  worker_.backend().AwaitStep();
  Submit(*session, 2);
  EXPECT_EQ(loop_.Submit(session.get(), Plan(3)),
            absl::FailedPreconditionError("3 plans are unanswered, the limit is 2"));
}

TEST_F(SessionLoopTest, ANewerEpochTakesOverAfterTheRunningStep) {
  const std::shared_ptr<RecordedSession> old_session = OpenSession(1);
  worker_.backend().Close();
  Submit(*old_session, 1);
  worker_.backend().AwaitStep();
  EXPECT_EQ(loop_.Open(std::make_shared<RecordedSession>(), 1).code(), absl::StatusCode::kFailedPrecondition);
  const std::shared_ptr<RecordedSession> waiting = OpenSession(2);
  const std::shared_ptr<RecordedSession> newest = OpenSession(3);
  // A session that was never served ends without a step of its own.
  EXPECT_THAT(waiting->AwaitEnd(), ElementsAre("ABORTED"));
  Submit(*old_session, 2);  // The loop drops it, because the session was replaced.
  worker_.backend().Open();
  EXPECT_THAT(old_session->AwaitEnd(), ElementsAre("opened 1", "ABORTED"));
  Submit(*newest, 1);
  loop_.CloseAfterPlans(newest.get());
  EXPECT_THAT(newest->AwaitEnd(), ElementsAre("opened 3", "result 1", "OK"));
}

TEST_F(SessionLoopTest, APlanThatFailsEndsItsSessionAndDropsThePlansAfterIt) {
  const std::shared_ptr<RecordedSession> session = OpenSession(1);
  worker_.backend().Close();
  Submit(*session, 1);
  worker_.backend().AwaitStep();
  Submit(*session, 3);  // Step 2 is missing.
  worker_.backend().Open();
  EXPECT_THAT(session->AwaitEnd(), ElementsAre("opened 1", "result 1", "INVALID_ARGUMENT"));
  EXPECT_EQ(stats_.Snapshot().failed_steps, 1);

  const std::shared_ptr<RecordedSession> next = OpenSession(2);
  Submit(*next, 1);
  loop_.CloseAfterPlans(next.get());
  EXPECT_THAT(next->AwaitEnd(), ElementsAre("opened 2", "result 1", "OK"));
}

TEST_F(SessionLoopTest, ADrainRefusesSessionsAndWaitsForTheOpenOne) {
  const std::shared_ptr<RecordedSession> session = OpenSession(1);
  session->Await(1);
  bool has_drained = false;
  std::thread drain([&] { has_drained = loop_.Drain(absl::Minutes(10)); });
  session->Await(2);
  EXPECT_EQ(loop_.Open(std::make_shared<RecordedSession>(), 2).code(), absl::StatusCode::kUnavailable);
  Submit(*session, 1);
  loop_.CloseAfterPlans(session.get());
  EXPECT_THAT(session->AwaitEnd(), ElementsAre("opened 1", "draining", "result 1", "OK"));
  drain.join();
  EXPECT_TRUE(has_drained);
}

TEST_F(SessionLoopTest, TwoThreadsThatStopTheLoopWaitForTheRunningStep) {
  const std::shared_ptr<RecordedSession> session = OpenSession(1);
  worker_.backend().Close();
  Submit(*session, 1);
  worker_.backend().AwaitStep();
  std::thread first([&] { loop_.Stop(); });
  std::thread second([&] { loop_.Stop(); });
  worker_.backend().Open();
  first.join();
  second.join();
  EXPECT_THAT(session->AwaitEnd(), ElementsAre("opened 1", "result 1", "UNAVAILABLE"));
  EXPECT_EQ(loop_.Open(std::make_shared<RecordedSession>(), 2).code(), absl::StatusCode::kUnavailable);
}

// What a session of two plans may record, depending on when a newer session takes over.
bool IsPossible(const std::vector<std::string>& answers, uint64_t epoch, const std::string& end) {
  std::vector<std::string> all = {absl::StrCat("opened ", epoch), "result 1", "result 2"};
  if (end == "OK") {
    all.push_back(end);
    return answers == all;
  }
  if (answers.empty() || answers.back() != end) return false;
  const size_t count = answers.size() - 1;
  return count <= all.size() && std::equal(answers.begin(), answers.end() - 1, all.begin());
}

TEST_F(SessionLoopTest, SessionsOfSeveralThreadsReplaceEachOther) {
  constexpr int kNumThreads = 3;
  constexpr int kNumRounds = 12;
  std::atomic<uint64_t> last_epoch{0};
  const auto manage = [&](int thread) {
    for (int round = 0; round < kNumRounds; ++round) {
      const auto session = std::make_shared<RecordedSession>();
      const uint64_t epoch = ++last_epoch;
      if (!loop_.Open(session, epoch).ok()) continue;  // Another thread was faster with a newer epoch.
      Submit(*session, 1);
      Submit(*session, 2);
      if ((thread + round) % 2 == 0) {
        loop_.CloseAfterPlans(session.get());
      } else {
        session->End(absl::CancelledError());
        loop_.Leave(session.get());
      }
      const std::vector<std::string> answers = session->AwaitEnd();
      EXPECT_TRUE(IsPossible(answers, epoch, answers.back())) << ::testing::PrintToString(answers);
      EXPECT_THAT(answers.back(), ::testing::AnyOf("OK", "ABORTED", "CANCELLED"));
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kNumThreads; ++thread) threads.emplace_back(manage, thread);
  for (std::thread& thread : threads) thread.join();

  const std::shared_ptr<RecordedSession> last = OpenSession(++last_epoch);
  Submit(*last, 1);
  loop_.CloseAfterPlans(last.get());
  EXPECT_THAT(last->AwaitEnd(), ElementsAre(absl::StrCat("opened ", last_epoch.load()), "result 1", "OK"));
}

// A loop whose device hangs in the second step, with `num_plans` plans under way, and which may be told to stop.
void RunLoopThatHangs(int num_plans, bool stops) {
  TestWorker worker;
  WorkerStats stats;
  SessionLoop loop(&worker.executor(), &stats, /*binds_threads=*/false);
  const auto session = std::make_shared<RecordedSession>();
  ASSERT_EQ(loop.Open(session, 7), absl::OkStatus());
  ASSERT_EQ(loop.Submit(session.get(), Plan(1)), absl::OkStatus());
  session->Await(2);
  worker.backend().Hang(std::chrono::milliseconds(100));
  for (int i = 0; i < num_plans; ++i) ASSERT_EQ(loop.Submit(session.get(), Plan(2 + i)), absl::OkStatus());
  if (stops) {
    worker.backend().AwaitQuestion();
    loop.Stop();
  }
  session->Await(3);
}

TEST(SessionLoopDeathTest, ADeviceThatHangsEndsTheWorkerAlsoWithoutAnotherPlanAndWhenItStops) {
  if (DeviceOfTests() == TestDevice::kGpu) GTEST_SKIP() << "a process cannot use a GPU twice";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int num_plans : {1, 2}) {
    for (const bool stops : {false, true}) {
      EXPECT_EXIT(RunLoopThatHangs(num_plans, stops), testing::ExitedWithCode(EXIT_FAILURE), "the gated backend hangs")
          << num_plans;
    }
  }
}

}  // namespace
}  // namespace quire
