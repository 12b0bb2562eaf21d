// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/manager_engine.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "tests/kv_manager/engine/manager_engine_harness.h"
#include "tests/random.h"

namespace quire {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST_F(ManagerEngineTest, WithoutAReadyWorkerSubmitIsUnavailable) {
  Make(0);
  EXPECT_EQ(engine_->model(), nullptr);
  EXPECT_EQ(engine_->LongestSequence(GenerationId{1}), 0);
  const absl::Status status = engine_->Submit(MakeRequest(1, 4, 4), std::make_shared<RecordingSink>());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->status().refusals.no_worker, 1);
}

TEST_F(ManagerEngineTest, AWorkerThatNeverJoinedIsCountedWithoutItsAddress) {
  workers_.push_back(std::make_unique<FakeWorker>(Worker()));
  workers_[0]->Kill();
  engine_ = std::make_unique<ManagerEngine>(
      Options(),
      ManagerEngine::Hooks{.make_client = [this](const std::string&) { return workers_[0]->NewClient(); },
                           .on_readiness = [](bool) {}},
      &SteadyClock());
  engine_->SetWorkers({"w"});
  WaitFor([this] { return workers_[0]->epochs().size() >= 2; }, "a second attempt to join");
  const absl::Status status = engine_->Submit(MakeRequest(1, 4, 4), std::make_shared<RecordingSink>());
  EXPECT_EQ(status.message(), "none of 1 workers is ready; 1 is not connected");
}

TEST_F(ManagerEngineTest, ARequestThatComesWhileTheOnlyWorkerIsLostRunsWhenItReturns) {
  Make(1);
  WaitForReady(true);
  workers_[0]->Kill();
  WaitForReady(false);
  const Request request = MakeRequest(1, 4, 8);
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(request, sink).ok());
  EXPECT_FALSE(sink->ended());
  workers_[0]->Start(Worker());
  sink->WaitForEnd();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
}

TEST_F(ManagerEngineTest, AWorkerThatIsDescribedAndHasNotJoinedBringsNoModel) {
  Make(0);
  workers_.push_back(std::make_unique<FakeWorker>(Worker()));
  workers_[0]->HoldOpening();
  engine_->SetWorkers({"0"});
  WaitFor([&] { return workers_[0]->is_opening(); }, "the manager to open a session");
  EXPECT_EQ(engine_->model(), nullptr);
  workers_[0]->LetOpen();
  WaitForReady(true);
  EXPECT_NE(engine_->model(), nullptr);
}

TEST_F(ManagerEngineTest, TheFirstWorkerBringsTheModel) {
  Make(1);
  WaitForReady(true);
  ASSERT_NE(engine_->model(), nullptr);
  EXPECT_EQ(engine_->model()->name, "shadow");
  EXPECT_EQ(engine_->model()->max_context_tokens, 64);
  EXPECT_EQ(engine_->model()->tokenizer, nullptr);
  EXPECT_EQ(engine_->status().model_name, "shadow");
}

TEST_F(ManagerEngineTest, TheLongestSequenceIsThatOfTheLargestPool) {
  Make(2);
  WaitForAllReady();
  const GenerationId generation = engine_->model()->generation;
  EXPECT_EQ(engine_->LongestSequence(generation), 64 * 4 + 1);
  EXPECT_EQ(engine_->LongestSequence(GenerationId{99}), 0);
}

TEST_F(ManagerEngineTest, EveryStreamOverTwoWorkersHasTheTokensOfItsSoloRun) {
  Make(2);
  WaitForAllReady();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (const auto& worker : workers_) worker->HoldBack();  // So requests accumulate, and both workers get some.
  for (uint64_t id = 1; id <= 60; ++id) {
    requests.push_back(MakeRequest(id, 1 + static_cast<int>(id % 20), 1 + static_cast<int>(id % 30)));
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine_->Submit(requests.back(), sinks.back()).ok());
  }
  for (const auto& worker : workers_) worker->Answer();
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitForEnd();
    EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i]));
  }
  EXPECT_GT(workers_[0]->num_plans(), 0);
  EXPECT_GT(workers_[1]->num_plans(), 0);
  EXPECT_TRUE(workers_[0]->error().ok()) << workers_[0]->error();
  EXPECT_TRUE(workers_[1]->error().ok()) << workers_[1]->error();
}

TEST_F(ManagerEngineTest, ALimitOfATenantCountsOverAllWorkers) {
  Make(2);
  WaitForAllReady();
  TenantTable table;
  table.by_tenant["hog"].max_requests = 4;
  engine_->SetTenants(table);
  for (const auto& worker : workers_) worker->HoldBack();
  const auto submit = [&](uint64_t id, const std::string& tenant) {
    Request request = MakeRequest(id, 4, 4);
    request.tenant = tenant;
    auto sink = std::make_shared<RecordingSink>();
    return std::pair(engine_->Submit(request, sink), sink);
  };
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 4; ++id) {
    const auto [status, sink] = submit(id, "hog");
    EXPECT_TRUE(status.ok()) << status;
    sinks.push_back(sink);
  }
  const absl::Status refused = submit(5, "hog").first;
  EXPECT_EQ(ReasonOf(refused)->word, "TENANT_LIMIT");
  EXPECT_TRUE(submit(6, "other").first.ok());
  EXPECT_EQ(engine_->status().refusals.tenant_limit, 1);
  const ManagerStatus status = engine_->status();
  const auto label = std::find(status.tenant_labels.begin(), status.tenant_labels.end(), "hog");
  ASSERT_NE(label, status.tenant_labels.end());
  EXPECT_EQ(status.totals.tenants[label - status.tenant_labels.begin()].refusals, 1);
  for (const auto& worker : workers_) worker->Answer();
  for (const auto& sink : sinks) sink->WaitForEnd();
  // The client may send the next request as soon as it hears of the end.
  EXPECT_TRUE(submit(7, "hog").first.ok());
}

TEST_F(ManagerEngineTest, TheSharesOfTenantsReachTheWorkers) {
  Make(1);
  WaitForReady(true);
  TenantTable table;
  table.by_tenant["hog"].share.max_blocks_share = 0.125;  // 8 of 64 blocks, which are 32 tokens.
  engine_->SetTenants(table);
  Request request = MakeRequest(1, 30, 10);
  request.tenant = "hog";
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_THAT(sink->failure().message(), HasSubstr("tenant \"hog\" may hold 8 of 64 (max_blocks_share is 0.125)"));
}

TEST_F(ManagerEngineTest, TenThousandRequestsHalfCancelledLeaveNoUsedBlock) {
  Make(2);
  WaitForAllReady();
  constexpr int kRequests = 10'000;
  constexpr int kThreads = 4;
  std::atomic<int> num_finished{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Random random(thread + 1);
      for (int i = thread; i < kRequests; i += kThreads) {
        const Request request = MakeRequest(i + 1, random.Between(1, 20), random.Between(1, 20));
        const auto sink = std::make_shared<RecordingSink>();
        ASSERT_TRUE(engine_->Submit(request, sink).ok());
        if (random.OneIn(2)) {
          sink->WaitForTokens(random.Between(0, 3));
          engine_->Cancel(request.id, FinishReason::kCancelled);
        } else {
          sink->WaitForEnd();
          ASSERT_EQ(sink->tokens(), SoloTokens({}, request));
          ++num_finished;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(engine_->Drain(absl::Seconds(60)));
  EXPECT_GT(num_finished, kRequests / 3);
  for (const auto& worker : engine_->status().workers) {
    EXPECT_EQ(worker->blocks.used, 0);
    EXPECT_EQ(worker->blocks.free + worker->blocks.evictable, 64);
    EXPECT_EQ(worker->waiting_requests + worker->running_requests, 0);
  }
  EXPECT_TRUE(workers_[0]->error().ok()) << workers_[0]->error();
  EXPECT_TRUE(workers_[1]->error().ok()) << workers_[1]->error();
}

TEST_F(ManagerEngineTest, EveryStatusUnderLoadIsConsistent) {
  Make(1);
  WaitForReady(true);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    int64_t last_tokens = 0;
    while (!done) {
      const std::shared_ptr<const WorkerStatus> worker = engine_->status().workers[0];
      ASSERT_EQ(worker->blocks.free + worker->blocks.evictable + worker->blocks.used, worker->blocks.total);
      ASSERT_EQ(worker->running_requests == 0, worker->blocks.used == 0);
      ASSERT_GE(worker->stats.generated_tokens, last_tokens);
      last_tokens = worker->stats.generated_tokens;
    }
  });
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 500; ++id) {
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine_->Submit(MakeRequest(id, 1 + static_cast<int>(id % 30), 20), sinks.back()).ok());
  }
  for (const auto& sink : sinks) sink->WaitForEnd();
  done = true;
  reader.join();
}

TEST_F(ManagerEngineTest, AWorkerThatDiesAgainAndAgainCostsNoToken) {
  StepLoopOptions options = Options();
  options.link.min_backoff_us = 1000;
  Make(2, options);
  WaitForAllReady();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 40; ++id) {
    requests.push_back(MakeRequest(id, 10, 40));
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine_->Submit(requests.back(), sinks.back()).ok());
  }
  const auto all_ended = [&] {
    return std::all_of(sinks.begin(), sinks.end(), [](const auto& sink) { return sink->ended(); });
  };
  for (int i = 0; i < 10; ++i) {
    FakeWorker& worker = *workers_[i % 2];
    // Two plans may be in flight, so a third plan shows that the session has answered one.
    const int num_plans = worker.num_plans() + 3;
    WaitFor([&] { return worker.num_plans() >= num_plans || all_ended(); }, "three more plans or the end of all");
    worker.Kill();
    worker.Start(Worker());
  }
  for (size_t i = 0; i < sinks.size(); ++i) {
    sinks[i]->WaitForEnd();
    EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i]));
  }
}

TEST_F(ManagerEngineTest, AWorkerWithABrokenTokenizerIsRefusedNamedAndTold) {
  Make(1);
  WaitForReady(true);
  WorkerDescription broken = OtherModel();
  broken.tokenizer_files = {{"tokenizer.json", "{"}};
  workers_.push_back(std::make_unique<FakeWorker>(broken));
  engine_->SetWorkers({"0", "1"});
  WaitFor([this] { return workers_[1]->epochs().size() >= 2; }, "a second attempt to join");
  const std::shared_ptr<const WorkerStatus> worker = engine_->status().workers[1];
  EXPECT_FALSE(worker->is_ready);
  EXPECT_THAT(worker->last_error, HasSubstr("cannot be used: tokenizer.json"));
  EXPECT_EQ(workers_[1]->refusals()[0], worker->last_error);
  EXPECT_EQ(engine_->model()->name, "shadow");
}

TEST_F(ManagerEngineTest, AnAddressIsOneWorkerHoweverOftenItIsNamed) {
  Make(1);
  engine_->SetWorkers({"0", "0"});
  EXPECT_EQ(engine_->status().workers.size(), 1u);
}

TEST_F(ManagerEngineTest, AWorkerThatIsNotNamedAnyMoreLeavesWhenItIsLostAndItsCountsStay) {
  Make(2);
  WaitForAllReady();
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 4; ++id) {
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine_->Submit(MakeRequest(id, 4, 8), sinks.back()).ok());
  }
  for (const auto& sink : sinks) sink->WaitForEnd();
  engine_->SetWorkers({"0"});
  EXPECT_EQ(engine_->status().workers.size(), 2u) << "it is still connected";
  workers_[1]->Kill();
  const auto has_left = [this] {
    engine_->SetWorkers({"0"});
    return engine_->status().workers.size() == 1;
  };
  WaitFor(has_left, "the lost worker to leave");
  EXPECT_EQ(engine_->status().workers[0]->address, "0");
  // A step loop publishes its counts after it has told the callers of the end.
  WaitFor([this] { return engine_->status().totals.generated_tokens == 32; }, "the counts of both workers");
}

// What such a worker still has belongs to requests of this manager, which run elsewhere now or have ended.
TEST_F(ManagerEngineTest, NothingIsAdoptedFromAWorkerThatIsAddedAgain) {
  StepLoopOptions options = Options();
  options.adopt_window_us = 60'000'000;
  Make(3, options);
  WaitForAllReady();
  for (const auto& worker : workers_) EXPECT_EQ(worker->num_adoptions(), 1);
  workers_[1]->Kill();
  const auto has_left = [this] {
    engine_->SetWorkers({"0", "2"});
    return engine_->status().workers.size() == 2;
  };
  WaitFor(has_left, "the lost worker to leave");
  workers_[1]->Start(Worker());
  engine_->SetWorkers({"0", "1", "2"});
  WaitForAllReady();
  EXPECT_EQ(workers_[1]->num_adoptions(), 1);
}

// A manager may stand by for days, and the leaders meanwhile have had greater epochs than the time of its start.
TEST_F(ManagerEngineTest, EpochsBeginWithTheTimeAtWhichTheManagerBeginsToLead) {
  Make(0);
  workers_.push_back(std::make_unique<FakeWorker>(Worker()));
  engine_->BeginToLead(5000);
  engine_->SetWorkers({"0"});
  WaitForReady(true);
  EXPECT_EQ(engine_->status().workers[0]->epoch, 5000u);
}

TEST_F(ManagerEngineTest, DrainRefusesNewRequestsAndWaitsForTheRunningOnes) {
  Make(1);
  WaitForReady(true);
  workers_[0]->HoldBack();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 4, 8), sink).ok());
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(1)));
  EXPECT_FALSE(is_ready_);
  const absl::Status refused = engine_->Submit(MakeRequest(2, 4, 8), std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("draining"));
  EXPECT_EQ(ReasonOf(refused)->word, "DRAINING");
  EXPECT_TRUE(engine_->status().is_draining);
  EXPECT_EQ(engine_->status().refusals.draining, 1);

  std::thread answer([this] {
    WaitFor([this] { return workers_[0]->num_plans() > 0; }, "the first plan");
    workers_[0]->Answer();
  });
  EXPECT_TRUE(engine_->Drain(absl::Seconds(60)));
  answer.join();
  EXPECT_EQ(sink->reason(), FinishReason::kLength);
}

TEST_F(ManagerEngineTest, TheOnlyWorkerDrainsAndNewRequestsAreRefused) {
  Make(1);
  WaitForReady(true);
  workers_[0]->HoldBack();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 4, 8), sink).ok());
  workers_[0]->Drain();
  WaitForReady(false);
  const absl::Status refused = engine_->Submit(MakeRequest(2, 4, 8), std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("; 1 drains"));
  workers_[0]->Answer();
  sink->WaitForEnd();
  EXPECT_EQ(sink->reason(), FinishReason::kLength);
}

TEST_F(ManagerEngineTest, StopFailsWhatStillRuns) {
  Make(1);
  WaitForReady(true);
  workers_[0]->HoldBack();
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(MakeRequest(1, 4, 8), sink).ok());
  engine_->Stop();
  EXPECT_EQ(sink->failure().code(), absl::StatusCode::kUnavailable);
}

// The next manager adopts what the worker keeps, and the client comes back to it.
TEST_F(ManagerEngineTest, ADrainNeedNotWaitForWhatIsLeftToTheNextManager) {
  StepLoopOptions options = Options();
  options.adopt_window_us = 60'000'000;
  Make(1, options);
  WaitForReady(true);
  workers_[0]->HoldBack();
  const auto left = std::make_shared<RecordingSink>();
  Request request = MakeRequest(1, 4, 60);
  request.record = std::make_shared<const std::string>("sealed");
  ASSERT_TRUE(engine_->Submit(request, left).ok());
  const auto other = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(MakeRequest(2, 4, 8), other).ok());
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(1), /*awaits_restorable=*/false));
  std::thread cancel([this] { engine_->Cancel(RequestId{2}, FinishReason::kCancelled); });
  EXPECT_TRUE(engine_->Drain(absl::Seconds(60), /*awaits_restorable=*/false));
  cancel.join();
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(1)));
  EXPECT_FALSE(left->ended());
  engine_->Stop();
  EXPECT_EQ(left->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(left->failure())->word, "RESTORING");
}

TEST_F(ManagerEngineTest, NothingIsLeftToANextManagerThatAdoptsNothing) {
  Make(1);  // Its adopt window is 0.
  WaitForReady(true);
  workers_[0]->HoldBack();
  const auto sink = std::make_shared<RecordingSink>();
  Request request = MakeRequest(1, 4, 8);
  request.record = std::make_shared<const std::string>("sealed");
  ASSERT_TRUE(engine_->Submit(request, sink).ok());
  EXPECT_FALSE(engine_->Drain(absl::Milliseconds(1), /*awaits_restorable=*/false));
  engine_->Stop();
  EXPECT_EQ(ReasonOf(sink->failure())->word, "DRAINING");
}

TEST_F(ManagerEngineTest, AfterStopAWorkerIsUnavailableRatherThanUnknown) {
  Make(1);
  absl::Status answer;
  const auto done = [&answer](const absl::Status& status) { answer = status; };
  engine_->AskWorker(
      "nowhere", [](const LoopView&) {}, done);
  EXPECT_EQ(answer.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->SetWorkerDraining("nowhere", true).status().code(), absl::StatusCode::kNotFound);
  engine_->Stop();
  engine_->AskWorker(
      "0", [](const LoopView&) { FAIL() << "the loop has stopped"; }, done);
  EXPECT_EQ(answer.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->SetWorkerDraining("0", true).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ManagerEngineTest, ReadinessFollowsTheWorkers) {
  Make(1);
  WaitForReady(true);
  workers_[0]->Kill();
  WaitForReady(false);
  std::shared_ptr<const WorkerStatus> worker;
  const auto is_lost = [&] {
    worker = engine_->status().workers[0];
    return !worker->is_ready;
  };
  WaitFor(is_lost, "the status to show the loss");
  // A later attempt gives the second text.
  EXPECT_THAT(worker->last_error, AnyOf(HasSubstr("socket closed"), HasSubstr("connection refused")));
  workers_[0]->Start(Worker());
  WaitForReady(true);
}

}  // namespace
}  // namespace quire
