// SPDX-License-Identifier: Apache-2.0

// A full worker gives waiting requests to an idle one.

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kv_manager/engine/rebalancer.h"
#include "tests/kv_manager/engine/manager_engine_harness.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

class RebalanceTest : public ManagerEngineTest {
 protected:
  static StepLoopOptions Rebalancing() {
    StepLoopOptions options = Options();
    options.rebalances = true;
    options.overdue_us = 600'000'000;  // A worker that a test holds back is no late one.
    return options;
  }

  void Submit(int count, int prompt_length, int max_tokens) {
    for (int i = 0; i < count; ++i) {
      requests_.push_back(MakeRequest(requests_.size() + 1, prompt_length, max_tokens));
      requests_.back().prompt[0] = static_cast<TokenId>(requests_.size());  // No prefix is cached.
      sinks_.push_back(std::make_shared<RecordingSink>());
      ASSERT_EQ(engine_->Submit(requests_.back(), sinks_.back()), absl::OkStatus());
    }
  }

  // The requests are submitted while worker 1 takes none.
  void SubmitToFirst(int count, int prompt_length, int max_tokens) {
    ASSERT_TRUE(engine_->SetWorkerDraining("1", true).ok());
    Submit(count, prompt_length, max_tokens);
    WaitFor([&] { return NumRequests(0) == count; }, "the first worker to have the requests");
    ASSERT_TRUE(engine_->SetWorkerDraining("1", false).ok());
  }

  int NumRunning(int worker) { return engine_->status().workers[worker]->running_requests; }
  int NumRequests(int worker) {
    const auto status = engine_->status().workers[worker];
    return status->running_requests + status->waiting_requests;
  }

  void ExpectRightTokens() {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      sinks_[i]->WaitForEnd();
      EXPECT_EQ(sinks_[i]->failure(), absl::OkStatus());
      EXPECT_EQ(sinks_[i]->tokens(), SoloTokens({}, requests_[i])) << "of request " << i + 1;
    }
    for (const auto& worker : workers_) EXPECT_EQ(worker->error(), absl::OkStatus());
  }

  std::vector<Request> requests_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
};

TEST_F(RebalanceTest, WaitingRequestsMoveToAnIdleWorkerAndRunningOnesStay) {
  Make(2, Rebalancing());
  WaitForAllReady();
  for (const auto& worker : workers_) worker->HoldBack();
  SubmitToFirst(40, 9, 20);  // 3 of 64 blocks each, and then 8.
  const int num_running = NumRunning(0);
  ASSERT_GT(num_running, 0);
  ASSERT_LT(num_running, 40);
  WaitFor([&] { return NumRequests(1) > 0 && NumRequests(0) + NumRequests(1) == 40; }, "requests to move");
  EXPECT_EQ(NumRunning(0), num_running);
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  // Each loop publishes its counts after it has told the callers of the end.
  const auto counts_agree = [&] {
    const ManagerStatus status = engine_->status();
    return status.totals.moved_requests > 0 && status.totals.moved_requests == status.totals.rebalanced_requests;
  };
  WaitFor(counts_agree, "both loops to count the moves");
  EXPECT_EQ(engine_->status().workers[0]->stats.rebalanced_requests, engine_->status().totals.moved_requests);
  EXPECT_LE(engine_->status().totals.moved_requests, 40 - num_running) << "a request moves once";
}

// The pool is so small for these requests that they are preempted repeatedly.
TEST_F(RebalanceTest, PreemptedRequestsMoveWithTheirTokens) {
  Make(2, Rebalancing());
  WaitForAllReady();
  for (const auto& worker : workers_) worker->HoldBack();
  SubmitToFirst(12, 9, 50);  // 3 of 64 blocks each, and then 15.
  WaitFor(
      [&] {
        workers_[0]->AnswerOnce();
        const auto status = engine_->status().workers[0];
        return status->stats.preemptions > 0 || status->stats.rebalanced_requests > 0;
      },
      "a request to be preempted");
  WaitFor([&] { return NumRequests(1) > 0; }, "requests to move");
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
}

TEST_F(RebalanceTest, WithoutTheOptionNothingMoves) {
  StepLoopOptions options = Rebalancing();
  options.rebalances = false;
  Make(2, options);
  WaitForAllReady();
  for (const auto& worker : workers_) worker->HoldBack();
  SubmitToFirst(40, 9, 20);
  std::this_thread::sleep_for(std::chrono::microseconds(Rebalancer::kFullUs + 2 * Rebalancer::kIntervalUs));
  EXPECT_EQ(NumRequests(1), 0);
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  EXPECT_EQ(engine_->status().totals.moved_requests, 0);
}

}  // namespace
}  // namespace quire
