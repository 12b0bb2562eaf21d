// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/manager_engine.h"
#include "scheduler/scheduler.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  options.overdue_us = 600 * kSecond;  // A worker that a test holds back still takes requests over.
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
  int NumRequests(int worker) {
    const auto status = engine_->status().workers[worker];
    return status->running_requests + status->waiting_requests;
  }
  // A plan may have been made before the last request came, so plans are answered until all requests run.
  void WaitUntilWorkerRuns(int num_requests) {
    const auto all_run = [&] {
      if (NumRunning(0) < num_requests) workers_[0]->AnswerOnce();
      return NumRunning(0) == num_requests;
    };
    WaitFor(all_run, "the first worker to run all requests");
  }
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
  WaitFor([&] { return NumRequests(0) + NumRequests(1) == 12; }, "the loops to take all requests");
  for (int i = 0; i < 5; ++i) workers_[0]->AnswerOnce();
  const int num_requests = NumRequests(0);
  workers_[0]->Kill();
  workers_[1]->Answer();
  ExpectRightTokens();
  WaitFor([&] { return NumMoved() >= num_requests; }, "the moves to be counted");
  EXPECT_EQ(NumMoved(), num_requests) << "each request moves once, to the other worker";
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
  WaitFor([&] { return NumRequests(0) == 4; }, "the first generation to have its requests");
  workers_[0]->Kill();
  workers_[1]->Answer();
  WaitFor([&] { return !engine_->status().workers[0]->is_ready; }, "the loss to be noticed");
  workers_[0]->Start(Worker());
  workers_[0]->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 0);
}

// The same model with other numerics; a ShadowModel gives the same tokens.
WorkerDescription OtherNumerics() {
  WorkerDescription worker = Worker();
  worker.numerics_fingerprint = "hash/other bits";
  return worker;
}

StepLoopOptions Approximate() {
  StepLoopOptions options = Options();
  options.changes_numerics = true;
  options.worker_grace_us = 1200 * kSecond;
  return options;
}

TEST_F(FailoverTest, AnErrorNamesBothNumericsWhenOnlyOtherOnesAreReady) {
  StepLoopOptions options = Options();
  options.worker_grace_us = kSecond / 5;
  WorkerDescription other_model = OtherNumerics();
  other_model.model_name = "other";
  other_model.numerics_fingerprint = "other/bits";
  Make({Worker(), OtherNumerics(), other_model}, options);
  Submit(2, 9, 20);
  WaitUntilWorkerRuns(2);
  workers_[0]->Kill();
  for (const auto& sink : sinks_) {
    sink->WaitForEnd();
    EXPECT_TRUE(absl::IsUnavailable(sink->failure())) << sink->failure();
    EXPECT_EQ(ReasonOf(sink->failure()),
              (StatusReason{"NUMERICS_DIFFER",
                            {{"numerics", Worker().numerics_fingerprint}, {"other_numerics", "hash/other bits"}}}));
  }
  EXPECT_EQ(NumMoved(), 0);
}

TEST_F(FailoverTest, AnErrorNamesBothNumericsWhenTheWorkerReturnsWithOtherOnes) {
  StepLoopOptions options = Options();
  options.worker_grace_us = 1200 * kSecond;
  Make({Worker()}, options);
  Submit(1, 9, 20);
  WaitFor([&] { return NumRunning(0) == 1; }, "the request to run");
  workers_[0]->Kill();
  workers_[0]->Start(OtherNumerics());
  sinks_[0]->WaitForEnd();
  EXPECT_EQ(ReasonOf(sinks_[0]->failure()),
            (StatusReason{"NUMERICS_DIFFER",
                          {{"numerics", Worker().numerics_fingerprint}, {"other_numerics", "hash/other bits"}}}));
}

TEST_F(FailoverTest, ApproximateRequestsMoveAtOnceToOtherNumericsAndSayFromWhere) {
  Make({Worker(), OtherNumerics()}, Approximate());
  Submit(3, 9, 20);
  WaitUntilWorkerRuns(3);
  WaitFor(
      [&] {
        workers_[0]->AnswerOnce();
        return std::all_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->tokens().size() >= 4; });
      },
      "some tokens of each");
  workers_[0]->Kill();
  WaitFor([&] { return NumMoved() == 3; }, "the requests to move");
  std::vector<int> positions;
  for (const auto& sink : sinks_) positions.push_back(9 + static_cast<int>(sink->tokens().size()));
  workers_[1]->Answer();
  ExpectRightTokens();
  for (size_t i = 0; i < sinks_.size(); ++i) EXPECT_EQ(sinks_[i]->numerics_changes(), std::vector<int>{positions[i]});
  EXPECT_EQ(engine_->status().workers[1]->stats.numerics_changes, 3);
  ExpectNothingLeft();
}

TEST_F(FailoverTest, TheLogSaysWhereRequestsGoAndHowManyChangeTheirNumerics) {
  Make({Worker(), OtherNumerics()}, Approximate());
  Submit(3, 9, 20);
  WaitUntilWorkerRuns(3);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(engine_->SetWorkerDraining("0", true).ok());
  workers_[0]->Kill();
  WaitFor([&] { return NumMoved() == 3; }, "the requests to move");
  workers_[1]->Answer();
  ExpectRightTokens();
  ExpectNothingLeft();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("an operator drains worker 0, and its requests stay; it has 3 requests"));
  EXPECT_THAT(log, HasSubstr("; it had 3 requests\n"));
  EXPECT_THAT(log, HasSubstr(" of worker 0 move to other workers; it still has 0 requests\n"));
  EXPECT_THAT(log, testing::ContainsRegex("W .*worker 1 continues . requests? of other workers, and . of them"));
}

TEST_F(FailoverTest, ApproximateRequestsPreferTheirOwnNumerics) {
  Make({Worker(), OtherNumerics(), Worker()}, Approximate());
  Submit(6, 9, 20);
  WaitFor([&] { return NumRequests(0) > 0 && NumRequests(0) + NumRequests(2) == 6; }, "the requests to be placed");
  workers_[0]->Kill();
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  for (const auto& sink : sinks_) EXPECT_THAT(sink->numerics_changes(), IsEmpty());
  EXPECT_EQ(engine_->status().totals.numerics_changes, 0);
}

TEST_F(FailoverTest, ApproximateRequestsDoNotMoveToOtherWeightsOrAnotherTokenizer) {
  WorkerDescription other_weights = Worker();
  other_weights.numerics_fingerprint = "other/other bits";
  WorkerDescription other_tokenizer = OtherNumerics();
  other_tokenizer.tokenizer_files = {{.name = "tokenizer_config.json", .content = "{}"}};
  StepLoopOptions options = Approximate();
  options.worker_grace_us = kSecond / 5;
  Make({Worker(), other_weights, other_tokenizer}, options);
  Submit(1, 9, 20);
  WaitFor([&] { return NumRunning(0) == 1; }, "the request to run");
  workers_[0]->Kill();
  sinks_[0]->WaitForEnd();
  EXPECT_TRUE(absl::IsUnavailable(sinks_[0]->failure())) << sinks_[0]->failure();
  EXPECT_EQ(ReasonOf(sinks_[0]->failure()), std::nullopt);
  EXPECT_EQ(NumMoved(), 0);
}

TEST_F(FailoverTest, ApproximateRequestsStayWithAWorkerThatReturnsWithOtherNumerics) {
  Make({Worker()}, Approximate());
  Submit(2, 9, 20);
  WaitUntilWorkerRuns(2);
  for (int i = 0; i < 4; ++i) workers_[0]->AnswerOnce();
  workers_[0]->Kill();
  WaitFor([&] { return !engine_->status().workers[0]->is_ready; }, "the loss to be noticed");
  std::vector<int> positions;
  for (const auto& sink : sinks_) positions.push_back(9 + static_cast<int>(sink->tokens().size()));
  workers_[0]->Start(OtherNumerics());
  workers_[0]->Answer();
  ExpectRightTokens();
  for (size_t i = 0; i < sinks_.size(); ++i) EXPECT_EQ(sinks_[i]->numerics_changes(), std::vector<int>{positions[i]});
  EXPECT_EQ(engine_->status().totals.numerics_changes, 2);
  EXPECT_EQ(NumMoved(), 0);
}

// A drain is no loss: the requests can continue where they are.
TEST_F(FailoverTest, ADrainMovesNothingToOtherNumerics) {
  Make({Worker(), OtherNumerics()}, Approximate());
  Submit(2, 9, 20);
  WaitUntilWorkerRuns(2);
  workers_[0]->Drain();
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

TEST_F(FailoverTest, RequestsMoveAtTheLatestWhenTheGraceEnds) {
  StepLoopOptions options = Options();
  options.failover_after_us = 600 * kSecond;
  options.worker_grace_us = kSecond / 5;
  Make({Worker(), Worker()}, options);
  Submit(8, 9, 20);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  workers_[0]->Kill();
  workers_[1]->Answer();
  ExpectRightTokens();
  WaitFor([&] { return NumMoved() > 0; }, "the moves to be counted");
}

TEST_F(FailoverTest, AWorkerThatReturnsInAnotherGenerationGivesItsRequestsToItsOldOne) {
  StepLoopOptions options = Options();
  options.failover_after_us = 600 * kSecond;
  options.worker_grace_us = 1200 * kSecond;
  Make({Worker(), Worker()}, options);
  Submit(8, 9, 20);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  workers_[0]->Kill();
  WorkerDescription other = Worker();
  other.numerics_fingerprint = "other bits";
  workers_[0]->Start(other);
  workers_[1]->Answer();
  ExpectRightTokens();
  WaitFor([&] { return NumMoved() > 0; }, "the moves to be counted");
}

// The other worker holds its plans back, so no request of the first one ends before it moves.
TEST_F(FailoverTest, AWorkerThatIsToldToStopGivesItsRequestsAway) {
  Make({Worker(), Worker()});
  Submit(10, 9, 30);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  workers_[0]->AnswerOnce();
  workers_[0]->Drain();
  WaitFor(
      [&] {
        workers_[0]->AnswerOnce();
        return workers_[0]->is_gone();
      },
      "the worker to be gone");
  for (const auto& sink : sinks_) EXPECT_LT(sink->tokens().size(), 30u);
  workers_[1]->Answer();
  ExpectRightTokens();
  WaitFor([&] { return NumMoved() > 0; }, "the moves to be counted");
  EXPECT_EQ(engine_->status().totals.worker_losses, 0);
  ExpectNothingLeft();
}

TEST_F(FailoverTest, AnOperatorMovesTheRequestsOfAWorker) {
  Make({Worker(), Worker()});
  Submit(10, 9, 30);
  WaitFor([&] { return NumRequests(0) + NumRequests(1) == 10; }, "the loops to take all requests");
  workers_[0]->AnswerOnce();
  const int num_requests = NumRequests(0);
  ASSERT_TRUE(engine_->SetWorkerDraining("0", true, /*migrates=*/true).ok());
  WaitFor(
      [&] {
        workers_[0]->AnswerOnce();
        return NumRequests(0) == 0;
      },
      "the requests to move");
  WaitFor([&] { return NumMoved() >= num_requests; }, "the moves to be counted");
  EXPECT_EQ(NumMoved(), num_requests);
  workers_[1]->Answer();
  ExpectRightTokens();
  ExpectNothingLeft();
  ASSERT_TRUE(engine_->SetWorkerDraining("0", false).ok());
  Submit(4, 9, 20);
  WaitFor([&] { return NumRunning(0) > 0; }, "the worker to get requests again");
  workers_[0]->Answer();
  ExpectRightTokens();
  WaitFor([&] { return NumMoved() >= num_requests; }, "the moves to be counted");
  EXPECT_EQ(NumMoved(), num_requests) << "nothing moves after the drain";
}

TEST_F(FailoverTest, ADrainWithoutMovesLetsRequestsFinish) {
  Make({Worker(), Worker()});
  Submit(10, 9, 30);
  WaitFor([&] { return NumRunning(0) > 0 && NumRunning(1) > 0; }, "both workers to have requests");
  ASSERT_TRUE(engine_->SetWorkerDraining("0", true).ok());
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  EXPECT_EQ(NumMoved(), 0);
}

TEST_F(FailoverTest, WhatFindsNoRoomStaysOnTheWorkerThatDrains) {
  Make({Worker(), Worker(/*num_blocks=*/12)});
  ASSERT_TRUE(engine_->SetWorkerDraining("1", true).ok());
  Submit(8, 9, 30);  // 3 blocks now, 10 in the end.
  WaitFor([&] { return NumRequests(0) == 8; }, "the loop to take all requests");
  ASSERT_TRUE(engine_->SetWorkerDraining("1", false).ok());
  workers_[0]->Drain();
  WaitFor(
      [&] {
        workers_[0]->AnswerOnce();
        return NumMoved() > 0;
      },
      "the first request to move");
  EXPECT_GE(NumRequests(0), 4);
  for (const auto& worker : workers_) worker->Answer();
  ExpectRightTokens();
  WaitFor([&] { return workers_[0]->is_gone(); }, "the worker to be gone");
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
