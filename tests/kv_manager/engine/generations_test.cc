// SPDX-License-Identifier: Apache-2.0

// Tests what the manager does with workers of several generations, and with workers that are restarted.

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/status_reason.h"
#include "tests/kv_manager/engine/manager_engine_harness.h"

namespace quire {
namespace {

class GenerationsTest : public ManagerEngineTest {
 protected:
  // Two workers that are connected again at once, and four clients that send one request after the other.
  void MakeWithClients() {
    StepLoopOptions options = Options();
    options.link.min_backoff_us = 1000;
    options.link.max_backoff_us = 5000;
    Make(2, options);
    WaitForAllReady();
    for (uint64_t client = 0; client < 4; ++client) clients_.emplace_back([this, client] { RunClient(client); });
  }

  void RunClient(uint64_t client) {
    for (uint64_t i = 0; !is_over_ || i < 10; ++i) {
      Request request = MakeRequest(1 + client + 4 * i, 6, 12);
      request.generation = engine_->model()->generation;
      const auto sink = std::make_shared<RecordingSink>();
      const absl::Status status = engine_->Submit(request, sink);
      ASSERT_TRUE(status.ok()) << status;
      sink->WaitForEnd();
      ASSERT_EQ(sink->tokens(), SoloTokens({}, request)) << sink->failure();
      ++num_finished_;
    }
  }

  // The worker drains, stops and comes back with this model.
  void Restart(int index, WorkerDescription model) {
    FakeWorker* const worker = workers_[index].get();
    worker->Drain();
    WaitFor([&] { return worker->is_gone() && !engine_->status().workers[index]->is_ready; }, "the worker to drain");
    worker->Start(std::move(model));
    WaitForAllReady();
  }

  void StopClients() {
    is_over_ = true;
    for (std::thread& client : clients_) client.join();
    EXPECT_EQ(engine_->status().totals.worker_losses, 0);
    EXPECT_EQ(engine_->status().totals.failed, 0);
  }

  std::atomic<bool> is_over_{false};
  std::atomic<int> num_finished_{0};
  std::vector<std::thread> clients_;
};

TEST_F(GenerationsTest, NewRequestsGoToTheNewestGenerationAndOldOnesFinishInTheirs) {
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

TEST_F(GenerationsTest, AGenerationWithoutAReadyWorkerIsNotServedWhileAnotherHasOne) {
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

TEST_F(GenerationsTest, AWorkerThatTheOperatorDrainsServesNoGeneration) {
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

TEST_F(GenerationsTest, ARolloutToAnotherModelAndBackCostsNoRequest) {
  MakeWithClients();
  for (int i = 0; i < 8; ++i) {
    const WorkerDescription model = i % 4 < 2 ? OtherModel() : Worker();
    Restart(i % 2, model);
    EXPECT_EQ(engine_->model()->name, model.model_name);
    const int num_before = num_finished_;
    WaitFor([&] { return num_finished_ > num_before + 8; }, "requests of the new generation");
  }
  StopClients();
}

TEST_F(GenerationsTest, WorkersThatDrainOneAfterTheOtherCostNoRequest) {
  MakeWithClients();
  for (int i = 0; i < 20; ++i) Restart(i % 2, Worker());
  StopClients();
}

}  // namespace
}  // namespace quire
