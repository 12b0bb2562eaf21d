#include "kv_manager/engine/manager_engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"
#include "tests/random.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Large enough for many requests, small enough to preempt now and then: 64 blocks of 4 tokens.
WorkerDescription Worker() {
  WorkerDescription worker = SmallWorker();
  worker.num_blocks = 64;
  worker.max_sequences = 32;
  worker.max_tokens_per_step = 128;
  return worker;
}

WorkerDescription OtherModel() {
  WorkerDescription worker = Worker();
  worker.model_name = "other";
  worker.numerics_fingerprint = "other bits";
  return worker;
}

StepLoopOptions Options() {
  StepLoopOptions options;
  options.max_inbox_requests = 100'000;
  options.scheduler.max_waiting_requests = 100'000;
  options.scheduler.max_plans_in_flight = 2;
  return options;
}

// Waits until the predicate holds. After a minute it names `what` and ends the program, because nothing else would end
// it.
template <typename Predicate>
void WaitFor(const Predicate& holds, const std::string& what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "waited 60 s for " << what;
      std::abort();
    }
    std::this_thread::yield();
  }
}

// A manager with its threads, and workers "0", "1", ... in the same process.
class ManagerEngineTest : public ::testing::Test {
 protected:
  void Make(int num_workers, const StepLoopOptions& options = Options()) {
    for (int i = 0; i < num_workers; ++i) workers_.push_back(std::make_unique<FakeWorker>(Worker()));
    engine_ = std::make_unique<ManagerEngine>(
        options,
        ManagerEngine::Hooks{
            .make_client = [this](const std::string& name) { return workers_[std::stoi(name)]->NewClient(); },
            .on_readiness = [this](bool is_ready) { is_ready_ = is_ready; }},
        &SteadyClock());
    std::vector<std::string> addresses;
    for (int i = 0; i < num_workers; ++i) addresses.push_back(absl::StrCat(i));
    engine_->SetWorkers(addresses);
  }
  ~ManagerEngineTest() override { engine_.reset(); }  // Before the workers.

  void WaitForReady(bool is_ready) {
    WaitFor([&] { return is_ready_ == is_ready; },
            is_ready ? "the manager to be ready" : "the manager not to be ready");
  }
  // Every worker, not just one.
  void WaitForAllReady() {
    const auto all_ready = [this] {
      const ManagerStatus status = engine_->status();
      return std::all_of(status.workers.begin(), status.workers.end(), [](const auto& w) { return w->is_ready; });
    };
    WaitFor(all_ready, "all workers to be ready");
  }

  static Request MakeRequest(uint64_t id, int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{id};
    request.generation = GenerationId{1};  // That of the first worker.
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.max_tokens = max_tokens;
    request.sampling.seed = id;
    request.arrival_us = SteadyClock().NowMicros();
    return request;
  }

  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::atomic<bool> is_ready_{false};
  std::unique_ptr<ManagerEngine> engine_;
};

TEST_F(ManagerEngineTest, WithoutAReadyWorkerSubmitIsUnavailable) {
  Make(0);
  EXPECT_EQ(engine_->model(), nullptr);
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

TEST_F(ManagerEngineTest, TheFirstWorkerBringsTheModel) {
  Make(1);
  WaitForReady(true);
  ASSERT_NE(engine_->model(), nullptr);
  EXPECT_EQ(engine_->model()->name, "shadow");
  EXPECT_EQ(engine_->model()->max_context_tokens, 64);
  EXPECT_EQ(engine_->model()->tokenizer, nullptr);
  EXPECT_EQ(engine_->status().model_name, "shadow");
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
  // Who hears of the end may send the next request at once.
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

TEST_F(ManagerEngineTest, NewRequestsGoToTheNewestGenerationAndOldOnesFinishInTheirs) {
  Make(2);
  WaitForAllReady();
  workers_[0]->HoldBack();
  workers_[1]->HoldBack();
  std::vector<std::shared_ptr<RecordingSink>> old;
  for (uint64_t id = 1; id <= 4; ++id) {
    old.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine_->Submit(MakeRequest(id, 4, 8), old.back()).ok());
  }
  workers_.push_back(std::make_unique<FakeWorker>(OtherModel()));
  engine_->SetWorkers({"0", "1", "2"});
  WaitForAllReady();
  EXPECT_EQ(engine_->model()->name, "other");
  EXPECT_EQ(engine_->model()->generation, GenerationId{2});
  EXPECT_EQ(engine_->status().model_name, "other");
  EXPECT_EQ(engine_->status().workers[0]->generation, GenerationId{1});

  Request request = MakeRequest(5, 4, 8);
  request.generation = GenerationId{2};
  const auto sink = std::make_shared<RecordingSink>();
  ASSERT_TRUE(engine_->Submit(request, sink).ok());
  sink->WaitForEnd();
  EXPECT_GT(workers_[2]->num_plans(), 0);
  const int num_plans = workers_[2]->num_plans();
  workers_[0]->Answer();
  workers_[1]->Answer();
  for (const auto& each : old) {
    each->WaitForEnd();
    EXPECT_EQ(each->reason(), FinishReason::kLength);
  }
  EXPECT_EQ(workers_[2]->num_plans(), num_plans) << "no old request ran there";
}

TEST_F(ManagerEngineTest, AGenerationWithoutAReadyWorkerIsNotServedWhileAnotherHasOne) {
  Make(1);
  WaitForReady(true);
  workers_.push_back(std::make_unique<FakeWorker>(OtherModel()));
  engine_->SetWorkers({"0", "1"});
  WaitForAllReady();
  ASSERT_EQ(engine_->model()->name, "other");
  workers_[1]->Kill();
  WaitFor([this] { return engine_->model()->name == "shadow"; }, "the old generation to be served again");
  // A request with tokens of the lost generation does not wait for its worker.
  Request request = MakeRequest(1, 4, 8);
  request.generation = GenerationId{2};
  const absl::Status refused = engine_->Submit(request, std::make_shared<RecordingSink>());
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(refused)->word, "MODEL_REPLACED");
  EXPECT_TRUE(RetryDelayOf(refused).has_value());
  workers_[0]->Kill();
  WaitFor([this] { return engine_->model()->name == "other"; }, "the newest generation, when both wait");
}

TEST_F(ManagerEngineTest, AWorkerThatTheOperatorDrainsServesNoGeneration) {
  Make(1);
  WaitForReady(true);
  workers_.push_back(std::make_unique<FakeWorker>(OtherModel()));
  engine_->SetWorkers({"0", "1"});
  WaitForAllReady();
  ASSERT_TRUE(engine_->SetWorkerDraining("1", true).ok());
  EXPECT_EQ(engine_->model()->name, "shadow");
  ASSERT_TRUE(engine_->SetWorkerDraining("1", false).ok());
  EXPECT_EQ(engine_->model()->name, "other");
}

TEST_F(ManagerEngineTest, ARolloutToAnotherModelAndBackCostsNoRequest) {
  StepLoopOptions options = Options();
  options.link.min_backoff_us = 1000;
  options.link.max_backoff_us = 5000;
  Make(2, options);
  WaitForAllReady();
  std::atomic<bool> is_over{false};
  std::atomic<int> num_finished{0};
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t i = 0; !is_over || i < 10; ++i) {
        Request request = MakeRequest(1 + client + 4 * i, 6, 12);
        request.generation = engine_->model()->generation;
        const auto sink = std::make_shared<RecordingSink>();
        const absl::Status status = engine_->Submit(request, sink);
        ASSERT_TRUE(status.ok()) << status;
        sink->WaitForEnd();
        ASSERT_EQ(sink->tokens(), SoloTokens({}, request)) << sink->failure();
        ++num_finished;
      }
    });
  }
  for (int i = 0; i < 8; ++i) {
    const WorkerDescription model = i % 4 < 2 ? OtherModel() : Worker();
    FakeWorker* const worker = workers_[i % 2].get();
    worker->Drain();
    WaitFor([&] { return worker->is_gone() && !engine_->status().workers[i % 2]->is_ready; }, "the worker to drain");
    worker->Start(model);
    WaitForAllReady();
    EXPECT_EQ(engine_->model()->name, model.model_name);
    const int num_before = num_finished;
    WaitFor([&] { return num_finished > num_before + 8; }, "requests of the new generation");
  }
  is_over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(engine_->status().totals.worker_losses, 0);
  EXPECT_EQ(engine_->status().totals.failed, 0);
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

TEST_F(ManagerEngineTest, WorkersThatDrainOneAfterTheOtherCostNoRequest) {
  StepLoopOptions options = Options();
  options.link.min_backoff_us = 1000;
  options.link.max_backoff_us = 5000;
  Make(2, options);
  WaitForAllReady();
  std::atomic<bool> is_over{false};
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t i = 0; !is_over || i < 10; ++i) {
        const Request request = MakeRequest(1 + client + 4 * i, 6, 12);
        const auto sink = std::make_shared<RecordingSink>();
        const absl::Status status = engine_->Submit(request, sink);
        ASSERT_TRUE(status.ok()) << status;
        sink->WaitForEnd();
        ASSERT_EQ(sink->tokens(), SoloTokens({}, request));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    FakeWorker* const worker = workers_[i % 2].get();
    worker->Drain();
    WaitFor([&] { return worker->is_gone() && !engine_->status().workers[i % 2]->is_ready; }, "the worker to drain");
    worker->Start(Worker());
    WaitForAllReady();
  }
  is_over = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(engine_->status().totals.worker_losses, 0);
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
  workers_[0]->Start(Worker());
  WaitForReady(true);
}

}  // namespace
}  // namespace quire
