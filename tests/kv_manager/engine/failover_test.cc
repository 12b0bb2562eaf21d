#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/manager_engine.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {
namespace {

constexpr int64_t kSecond = 1'000'000;

WorkerDescription Worker(int num_blocks = 64) {
  WorkerDescription worker = SmallWorker();
  worker.num_blocks = num_blocks;
  worker.max_sequences = 32;
  worker.max_tokens_per_step = 128;
  return worker;
}

StepLoopOptions Options() {
  StepLoopOptions options;
  options.scheduler.max_plans_in_flight = 2;
  options.link.min_backoff_us = 1000;
  options.link.max_backoff_us = 10'000;
  return options;
}

// A manager with its threads, and workers "0", "1", ... in the same process. They answer only when told to.
class FailoverTest : public ::testing::Test {
 protected:
  ~FailoverTest() override { engine_.reset(); }  // Before the workers.

  void Make(const std::vector<WorkerDescription>& workers, const StepLoopOptions& options = Options()) {
    std::vector<std::string> addresses;
    for (const WorkerDescription& worker : workers) {
      addresses.push_back(absl::StrCat(workers_.size()));
      workers_.push_back(std::make_unique<FakeWorker>(worker));
    }
    engine_ = std::make_unique<ManagerEngine>(
        options,
        ManagerEngine::Hooks{
            .make_client = [this](const std::string& name) { return workers_[std::stoi(name)]->NewClient(); },
            .on_readiness = [](bool) {}},
        &SteadyClock());
    // One after the other, so that the first worker founds the first generation.
    for (size_t i = 1; i <= addresses.size(); ++i) {
      engine_->SetWorkers({addresses.begin(), addresses.begin() + i});
      WaitFor([&] { return engine_->status().workers[i - 1]->is_ready; }, "the worker to be ready");
      workers_[i - 1]->HoldBack();
    }
  }

  // Ends the program after a minute, because nothing else would end it.
  template <typename Predicate>
  static void WaitFor(const Predicate& holds, absl::string_view what) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "waited 60 s for " << what;
        std::abort();
      }
      std::this_thread::yield();
    }
  }

  // A request of the first generation. Requests with different numbers have different prompts.
  static Request MakeRequest(int number, int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{static_cast<uint64_t>(number)};
    request.generation = GenerationId{1};
    for (int i = 0; i < prompt_length; ++i) request.prompt.push_back(1 + (number + i) % 50);
    request.max_tokens = max_tokens;
    request.sampling.seed = number;
    request.arrival_us = SteadyClock().NowMicros();
    return request;
  }
  void Submit(int count, int prompt_length, int max_tokens) {
    for (int i = 0; i < count; ++i) {
      requests_.push_back(MakeRequest(static_cast<int>(requests_.size()) + 1, prompt_length, max_tokens));
      sinks_.push_back(std::make_shared<RecordingSink>());
      ASSERT_EQ(engine_->Submit(requests_.back(), sinks_.back()), absl::OkStatus());
    }
  }

  int NumRunning(int worker) { return engine_->status().workers[worker]->running_requests; }
  int64_t NumMoved() { return engine_->status().totals.moved_requests; }

  void ExpectRightTokens() {
    for (size_t i = 0; i < sinks_.size(); ++i) {
      sinks_[i]->WaitForEnd();
      EXPECT_EQ(sinks_[i]->failure(), absl::OkStatus());
      EXPECT_EQ(sinks_[i]->tokens(), SoloTokens({}, requests_[i])) << "of request " << i + 1;
    }
  }
  // All loops have published that nothing is left of any request.
  void ExpectNothingLeft() {
    const auto is_empty = [this] {
      const ManagerStatus status = engine_->status();
      return std::all_of(status.workers.begin(), status.workers.end(), [](const auto& worker) {
        return worker->blocks.used == 0 && worker->running_requests == 0 && worker->waiting_requests == 0;
      });
    };
    WaitFor(is_empty, "all blocks to be free");
    for (const auto& worker : workers_) EXPECT_EQ(worker->error(), absl::OkStatus());
  }

  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<ManagerEngine> engine_;
  std::vector<Request> requests_;
  std::vector<std::shared_ptr<RecordingSink>> sinks_;
};

TEST_F(FailoverTest, TheStreamsOfAWorkerThatNeverReturnsGoOnWithTheSameTokens) {
  Make({Worker(), Worker()});
  Submit(12, 9, 30);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  for (int i = 0; i < 5; ++i) workers_[0]->AnswerOnce();
  workers_[0]->Kill();
  workers_[1]->Answer();
  ExpectRightTokens();
  EXPECT_GT(NumMoved(), 0);
  ExpectNothingLeft();
}

TEST_F(FailoverTest, ARequestOutlivesTheLossOfOneWorkerAfterTheOther) {
  Make({Worker(), Worker(), Worker()});
  Submit(1, 9, 40);
  for (int lost = 0; lost < 2; ++lost) {
    int holder = -1;
    const auto find_holder = [&] {
      for (int i = 0; i < 3; ++i) {
        if (engine_->status().workers[i]->is_ready && NumRunning(i) > 0) holder = i;
      }
      return holder >= 0;
    };
    WaitFor(find_holder, "a worker to run the request");
    const size_t num_tokens = sinks_[0]->tokens().size();
    WaitFor(
        [&] {
          workers_[holder]->AnswerOnce();
          return sinks_[0]->tokens().size() >= num_tokens + 3;
        },
        "three more tokens");
    workers_[holder]->Kill();
    WaitFor([&] { return NumMoved() == lost + 1; }, "the request to move");
  }
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 2);
  ExpectNothingLeft();
}

TEST_F(FailoverTest, ARequestThatFitsNoOtherPoolWaitsForItsOwnWorker) {
  Make({Worker(), Worker(/*num_blocks=*/4)});
  Submit(1, 20, 20);  // 10 blocks of 4 tokens.
  WaitFor([&] { return NumRunning(0) == 1; }, "the large worker to run the request");
  workers_[0]->Kill();
  workers_[1]->Answer();
  WaitFor([&] { return !engine_->status().workers[0]->is_ready; }, "the loss to be noticed");
  workers_[0]->Start(Worker());
  workers_[0]->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 0);
}

TEST_F(FailoverTest, NoRequestMovesToAnotherGeneration) {
  WorkerDescription other = Worker();
  other.numerics_fingerprint = "other bits";
  Make({Worker(), other});
  Submit(4, 9, 20);
  WaitFor([&] { return NumRunning(0) == 4; }, "the first generation to run its requests");
  workers_[0]->Kill();
  workers_[1]->Answer();
  WaitFor([&] { return !engine_->status().workers[0]->is_ready; }, "the loss to be noticed");
  workers_[0]->Start(Worker());
  workers_[0]->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 0);
}

TEST_F(FailoverTest, AWorkerThatReturnsInTimeKeepsItsRequests) {
  StepLoopOptions options = Options();
  options.failover_after_us = 600 * kSecond;
  options.worker_grace_us = 1200 * kSecond;
  Make({Worker(), Worker()}, options);
  Submit(8, 9, 20);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  workers_[0]->Kill();
  WaitFor([&] { return !engine_->status().workers[0]->is_ready; }, "the loss to be noticed");
  workers_[0]->Start(Worker());
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 0);
}

// The poison must fail alone: it makes its own worker fail, and at most one more.
TEST_F(FailoverTest, ASuspectWaitsForItsOwnWorker) {
  Make({Worker(), Worker(), Worker()});
  Submit(12, 9, 30);
  for (const auto& worker : workers_) {
    worker->FailAt({.seed = requests_[4].sampling.seed, .position = 12});
    worker->Answer();
  }
  int num_failed = 0;
  for (size_t i = 0; i < sinks_.size(); ++i) {
    sinks_[i]->WaitForEnd();
    num_failed += !sinks_[i]->failure().ok();
    if (i == 4) continue;
    EXPECT_EQ(sinks_[i]->tokens(), SoloTokens({}, requests_[i])) << "of request " << i + 1;
  }
  EXPECT_FALSE(sinks_[4]->failure().ok());
  EXPECT_EQ(num_failed, 1);
  const ManagerStatus status = engine_->status();
  EXPECT_LE(status.totals.worker_losses, 4);
  const auto was_lost = [](const auto& worker) { return worker->stats.worker_losses > 0; };
  EXPECT_LE(std::count_if(status.workers.begin(), status.workers.end(), was_lost), 2);
}

// A cancel can meet the move at any moment: it must reach the request wherever that is.
TEST_F(FailoverTest, ACancelledRequestIsNeverLeftBehind) {
  Make({Worker(), Worker()});
  for (const auto& worker : workers_) worker->Answer();
  for (int round = 0; round < 20; ++round) {
    const size_t first = requests_.size();
    Submit(10, 9, 60);
    std::thread canceller([&] {
      for (size_t i = first; i < requests_.size(); ++i) engine_->Cancel(requests_[i].id, FinishReason::kCancelled);
    });
    workers_[round % 2]->Kill();
    workers_[round % 2]->Start(Worker());
    canceller.join();
    ExpectNothingLeft();
  }
}

}  // namespace
}  // namespace quire
