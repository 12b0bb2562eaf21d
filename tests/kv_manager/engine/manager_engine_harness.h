// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_ENGINE_MANAGER_ENGINE_HARNESS_H_
#define QUIRE_TESTS_KV_MANAGER_ENGINE_MANAGER_ENGINE_HARNESS_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/manager_engine.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {

// A manager with its threads, and workers "0", "1", ... in the same process.
class ManagerEngineTest : public ::testing::Test {
 protected:
  // Large enough for many requests, small enough to preempt now and then: 64 blocks of 4 tokens.
  static WorkerDescription Worker() {
    WorkerDescription worker = SmallWorker();
    worker.num_blocks = 64;
    worker.max_sequences = 32;
    worker.max_tokens_per_step = 128;
    return worker;
  }
  static WorkerDescription OtherModel() {
    WorkerDescription worker = Worker();
    worker.model_name = "other";
    worker.numerics_fingerprint = "other bits";
    return worker;
  }

  static StepLoopOptions Options() {
    StepLoopOptions options;
    options.max_inbox_requests = 100'000;
    options.scheduler.max_waiting_requests = 100'000;
    options.scheduler.max_plans_in_flight = 2;
    return options;
  }

  // Waits until the predicate holds. After a minute it names `what` and ends the program, because nothing else would
  // end it.
  template <typename Predicate>
  static void WaitFor(const Predicate& holds, const std::string& what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "waited 60 s for " << what;
        std::abort();
      }
      std::this_thread::yield();
    }
  }

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
    request.generation = GenerationId{1};  // Generation of the first worker.
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

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_ENGINE_MANAGER_ENGINE_HARNESS_H_
