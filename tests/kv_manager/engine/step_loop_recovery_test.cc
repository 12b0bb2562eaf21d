// SPDX-License-Identifier: Apache-2.0

// Tests what a step loop does while its worker is lost, refused or not yet there.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_reason.h"
#include "base/worker_protocol.h"
#include "gmock/gmock.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class StepLoopRecoveryTest : public StepLoopTest {
 protected:
  // Joins a worker for which requests wait 10 s when it is lost.
  void JoinWithGrace() {
    StepLoopOptions options = Options();
    options.worker_grace_us = 10 * kSecond;
    Join(options);
  }
  // Loses such a worker before it has a request.
  void JoinAndLose() {
    JoinWithGrace();
    worker_.Kill();
    Run();
  }
};

TEST_F(StepLoopRecoveryTest, AWorkerThatDiesAndReturnsContinuesEveryStreamWithTheSameTokens) {
  Join();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(MakeRequest(4 + i, 12));
    sinks.push_back(Submit(requests.back()));
  }
  for (int i = 0; i < 6; ++i) loop_->RunOnce();
  EXPECT_FALSE(sinks[0]->tokens().empty());
  worker_.Kill();
  Run();
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_THAT(loop_->status()->last_error, HasSubstr("socket closed"));
  EXPECT_EQ(used_blocks(), 0);
  worker_.Start(SmallWorker());
  Advance(100 * kMillisecond);
  for (size_t i = 0; i < sinks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i]));
    EXPECT_EQ(sinks[i]->reason(), FinishReason::kLength);
  }
  EXPECT_THAT(worker_.epochs(), ElementsAre(100, 101));
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_TRUE(worker_.error().ok()) << worker_.error();
}

TEST_F(StepLoopRecoveryTest, RequestsWaitForALostWorkerAsLongAsTheGrace) {
  JoinWithGrace();
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  worker_.Kill();
  Run();
  Advance(9 * kSecond);
  EXPECT_FALSE(sink->ended());
  Advance(kSecond);
  EXPECT_EQ(sink->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sink->failure().message()), HasSubstr("was lost and did not come back within 10 s"));
  EXPECT_EQ(loop_->status()->waiting_requests, 0);
  const auto late = Submit(MakeRequest(5, 20));
  Run();
  EXPECT_EQ(late->failure().code(), absl::StatusCode::kUnavailable);
}

// Such a request has never had a worker, and has not waited as long as the grace.
TEST_F(StepLoopRecoveryTest, ARequestThatCameAfterTheLossIsNotToldThatItHadAWorker) {
  JoinAndLose();
  Advance(2 * kSecond);
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  ::testing::internal::CaptureStderr();
  Advance(8 * kSecond);
  EXPECT_EQ(
      sink->failure().message(),
      "no worker has begun the request: the worker for which it waited was lost and did not come back within 10 s");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("1 request of worker worker:1 failed: no worker"));
}

TEST_F(StepLoopRecoveryTest, ARequestIsToldWhenAnotherManagerHasItsWorker) {
  JoinWithGrace();
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  worker_.EndSession(WithReason(absl::AbortedError("epoch 7 took over"), kSessionTakenOver));
  Run();
  worker_.Kill();
  Advance(10 * kSecond);
  EXPECT_EQ(sink->failure().message(),
            "another manager has taken the worker of the request, which did not come back within 10 s");
}

TEST_F(StepLoopRecoveryTest, TheLogHasTheReasonOfEveryRequestThatFails) {
  JoinWithGrace();
  worker_.HoldBack();
  const auto sent = Submit(MakeRequest(5, 20));  // The worker has it, and has answered nothing.
  Run();
  worker_.Kill();
  Run();
  std::vector<std::shared_ptr<RecordingSink>> late;
  for (int i = 0; i < 2; ++i) late.push_back(Submit(MakeRequest(5, 20)));
  Run();
  ::testing::internal::CaptureStderr();
  Advance(10 * kSecond);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(sent->failure().message(), "the worker of the request was lost and did not come back within 10 s");
  EXPECT_THAT(log, HasSubstr("1 request of worker worker:1 failed: the worker of the request was lost"));
  EXPECT_THAT(log, HasSubstr("2 requests of worker worker:1 failed: no worker has begun the request"));
}

TEST_F(StepLoopRecoveryTest, ARequestIsToldWhenItsWorkerCameBackAndCannotBeUsed) {
  JoinAndLose();
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  admission_ = absl::FailedPreconditionError("another model");
  worker_.Start(SmallWorker());
  for (int i = 0; i < 2; ++i) Advance(5 * kSecond);
  EXPECT_EQ(
      sink->failure().message(),
      "no worker has begun the request: the worker for which it waited was lost and did not come back within 10 s "
      "as one that the manager can use");
}

TEST_F(StepLoopRecoveryTest, ALostWorkerMayReturnUntilTheGraceEnds) {
  StepLoopOptions options = Options();
  options.worker_grace_us = 10 * kSecond;
  Make(options);
  EXPECT_FALSE(loop_->load().may_return) << "it never joined";
  Run();
  EXPECT_FALSE(loop_->load().may_return) << "it is ready";
  worker_.Kill();
  Run();
  EXPECT_TRUE(loop_->load().may_return);
  Advance(10 * kSecond);
  EXPECT_FALSE(loop_->load().may_return);
}

TEST_F(StepLoopRecoveryTest, RequestsForALostWorkerQueueUpToTheLimitAndRunWhenItReturns) {
  StepLoopOptions options = Options();
  options.scheduler.max_waiting_requests = 2;
  Join(options);
  worker_.Kill();
  Run();
  const Request request = MakeRequest(5, 4);
  const auto waiting = Submit(request);
  Request hurried = MakeRequest(5, 4);
  hurried.deadline_us = clock_.NowMicros() + kSecond;
  const auto late = Submit(hurried);
  const auto refused = Submit(MakeRequest(5, 4));
  Run();
  EXPECT_EQ(refused->failure().code(), absl::StatusCode::kResourceExhausted);
  Advance(kSecond);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late->failure())) << late->failure();
  EXPECT_FALSE(waiting->ended());
  worker_.Start(SmallWorker());
  Advance(5 * kSecond);
  EXPECT_EQ(waiting->tokens(), SoloTokens({}, request));
}

TEST_F(StepLoopRecoveryTest, AWorkerThatAnswersNeitherAPlanNorProbesInTimeIsGivenUp) {
  StepLoopOptions options = Options();
  options.link.step_timeout_us = 2 * kSecond;
  Join(options);
  worker_.StopProcess();
  const Request request = MakeRequest(5, 4);
  const auto sink = Submit(request);
  Run();
  for (int i = 0; i < 3; ++i) Advance(500 * kMillisecond);
  EXPECT_GT(loop_->status()->num_plans_in_flight, 0);
  Advance(500 * kMillisecond);
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->num_plans_in_flight, 0);
  EXPECT_EQ(loop_->status()->stats.interruptions, 1);
  EXPECT_THAT(loop_->status()->last_error, HasSubstr("did not answer a plan within 2000 ms"));
  worker_.ContinueProcess();
  worker_.Answer();
  Advance(100 * kMillisecond);
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
}

TEST_F(StepLoopRecoveryTest, ASlowWorkerThatAnswersProbesKeepsItsSessionAndOneThatHangsDoesNot) {
  StepLoopOptions options = Options();
  options.link.step_timeout_us = 2 * kSecond;
  Join(options);
  const auto wait = [this](int seconds) {
    for (int i = 0; i < 2 * seconds; ++i) Advance(500 * kMillisecond);
  };
  worker_.HoldBack();
  Submit(MakeRequest(5, 40));
  Run();
  wait(7);
  EXPECT_TRUE(loop_->status()->is_ready) << "nobody knows yet how long a step takes";
  worker_.AnswerOnce();
  Run();
  wait(19);
  EXPECT_TRUE(loop_->status()->is_ready) << "20 s are three times as long as the slowest step";
  wait(1);
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_THAT(loop_->status()->last_error, HasSubstr("did not answer a plan within 20000 ms"));
}

TEST_F(StepLoopRecoveryTest, AFastWorkerThatHangsIsGivenUpAfterTheTimeout) {
  StepLoopOptions options = Options();
  options.link.step_timeout_us = 2 * kSecond;
  Join(options);
  worker_.HoldBack();
  Submit(MakeRequest(5, 40));
  Run();
  Advance(50 * kMillisecond);
  worker_.AnswerOnce();
  Run();
  for (int i = 0; i < 4; ++i) Advance(500 * kMillisecond);
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_THAT(loop_->status()->last_error, HasSubstr("did not answer a plan within 2000 ms"));
}

TEST_F(StepLoopRecoveryTest, AnAnswerToAnotherPlanIsALossAndNotACrash) {
  Join();
  worker_.AnswerNextPlanWrongly();
  const Request request = MakeRequest(5, 4);
  const auto sink = Submit(request);
  Run();
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->stats.worker_losses, 1);
  Advance(100 * kMillisecond);
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
}

TEST_F(StepLoopRecoveryTest, ARequestThatKillsItsWorkerFailsAloneAndItsNeighboursLoseNothing) {
  StepLoopOptions options = Options();
  options.scheduler.max_plans_in_flight = 2;
  Join(options);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(MakeRequest(3 + i, 8));
    sinks.push_back(Submit(requests.back()));
  }
  worker_.FailAt({.seed = requests[3].sampling.seed, .position = 7});
  Run();
  for (int i = 0; i < 10; ++i) Advance(kSecond);
  for (int i = 0; i < 6; ++i) {
    if (i == 3) continue;
    EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i])) << sinks[i]->failure();
  }
  EXPECT_EQ(loop_->status()->stats.worker_losses, 4);
  EXPECT_EQ(loop_->status()->stats.failed, 1);
  const absl::Status failure = sinks[3]->failure();
  EXPECT_EQ(failure.code(), absl::StatusCode::kInternal) << "another attempt would do the same";
  EXPECT_EQ(ReasonOf(failure), (StatusReason{"REQUEST_FAILS_WORKER", {{"losses", "4"}}}));
  EXPECT_EQ(failure.message(),
            "the request makes its worker fail: the worker was lost 4 times while it computed this request, at last "
            "while it computed nothing else; the last reason: the connection to the worker was lost");
}

TEST_F(StepLoopRecoveryTest, ARequestThatTheWorkerNamesFailsAfterOneTrialWithTheWorkersReason) {
  Join();
  const Request innocent = MakeRequest(4, 8);
  const auto sink = Submit(innocent);
  const Request poison = MakeRequest(5, 8);
  worker_.FailAt({.seed = poison.sampling.seed, .position = 6, .is_named = true});
  const auto failing = Submit(poison);
  Run();
  for (int i = 0; i < 5; ++i) Advance(kSecond);
  EXPECT_EQ(sink->tokens(), SoloTokens({}, innocent));
  EXPECT_EQ(loop_->status()->stats.worker_losses, 2);
  EXPECT_THAT(std::string(failing->failure().message()), EndsWith("are not finite"));
}

TEST_F(StepLoopRecoveryTest, ARequestWhoseSequenceFailsEndsAloneAndTheSessionGoesOn) {
  StepLoopOptions options = Options();
  options.scheduler.max_plans_in_flight = 2;
  Join(options);
  const Request innocent = MakeRequest(4, 8);
  const auto sink = Submit(innocent);
  const Request poison = MakeRequest(5, 8);
  worker_.FailAt({.seed = poison.sampling.seed, .position = 6, .is_reported = true});
  const auto failing = Submit(poison);
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, innocent));
  EXPECT_EQ(loop_->status()->stats.worker_losses, 0);
  EXPECT_EQ(loop_->status()->stats.failed, 1);
  EXPECT_EQ(failing->failure().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(failing->failure()), (StatusReason{"LOGITS_NOT_FINITE", {}}));
  EXPECT_EQ(failing->failure().message(),
            "the model gives no finite numbers for the request: the logits are not finite");
}

TEST_F(StepLoopRecoveryTest, TheErrorTellsAtWhichSampleTheWorkerHasFailed) {
  Join();
  Request request = MakeRequest(4, 12);
  request.num_samples = 3;
  worker_.FailAt({.seed = request.sampling.seed, .position = 8, .is_named = true, .sample = 2});
  const auto sink = std::make_shared<FailureSink>();
  ASSERT_TRUE(Submit(request, sink).ok());
  Run();
  for (int i = 0; i < 5; ++i) Advance(kSecond);
  EXPECT_EQ(ReasonOf(sink->failure), (StatusReason{"REQUEST_FAILS_WORKER", {{"losses", "2"}, {"sample", "2"}}}));
  EXPECT_THAT(std::string(sink->failure.message()),
              StartsWith("sample 2 of the request makes its worker fail: the worker was lost 2 times"));
}

TEST_F(StepLoopRecoveryTest, APoisonInALongPromptIsGivenUpAndItsWorkerIsReadyAgain) {
  StepLoopOptions options = Options();
  options.scheduler.max_chunk_tokens = 4;
  Join(options);
  const Request poison = MakeRequest(40, 4);
  worker_.FailAt({.seed = poison.sampling.seed, .position = 33});
  const auto sink = Submit(poison);
  Run();
  for (int i = 0; i < 5; ++i) Advance(kSecond);
  EXPECT_TRUE(absl::IsInternal(sink->failure())) << sink->failure();
  EXPECT_EQ(loop_->status()->stats.worker_losses, 4);
  EXPECT_TRUE(loop_->status()->is_ready);
}

TEST_F(StepLoopRecoveryTest, RestartsOfAWorkerThatWasToldToStopCountAgainstNobody) {
  Join();
  const Request request = MakeRequest(5, 4);
  worker_.HoldBack();
  const auto sink = Submit(request);
  for (int i = 0; i < 10; ++i) {
    Run();
    worker_.Drain();
    Run();
    worker_.Kill();
    worker_.Start(SmallWorker());
    Run();
    Advance(kSecond);
  }
  EXPECT_FALSE(sink->ended()) << sink->failure();
  worker_.Answer();
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
}

// A worker that two managers want is taken over repeatedly.
TEST_F(StepLoopRecoveryTest, OnlyTheWorkersOwnWordForATakeoverCountsAgainstNobody) {
  const absl::Status aborted = absl::AbortedError("proxy 10.0.0.7: the stream was aborted");
  for (const bool is_takeover : {true, false}) {
    loop_.reset();
    Join();
    worker_.HoldBack();
    const auto sink = Submit(MakeRequest(5, 4));
    for (int i = 0; i < 4; ++i) {
      Run();
      worker_.EndSession(is_takeover ? WithReason(aborted, kSessionTakenOver) : aborted);
      Run();
      Advance(kSecond);
    }
    EXPECT_EQ(loop_->status()->stats.worker_losses, 4);
    EXPECT_EQ(sink->ended(), !is_takeover) << sink->failure();
    EXPECT_THAT(std::string(sink->failure().message()), Not(HasSubstr("10.0.0.7")));
  }
}

TEST_F(StepLoopRecoveryTest, AWorkerThatIsOverdueSaysSoUntilItAnswers) {
  Join();
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(5, 4));
  EXPECT_EQ(Run(), kSecond / 2) << "to ask whether its process answers";
  EXPECT_EQ(Advance(3 * kSecond / 2), 2 * kSecond) << "to tell that it is overdue, and to ask again";
  EXPECT_FALSE(loop_->load().is_overdue);
  EXPECT_EQ(Advance(kSecond / 2), 5 * kSecond / 2) << "to ask again";
  EXPECT_TRUE(loop_->load().is_overdue);
  EXPECT_TRUE(loop_->load().is_ready);
  worker_.Answer();
  Run();
  EXPECT_FALSE(loop_->load().is_overdue);
}

TEST_F(StepLoopRecoveryTest, AttemptsAreFrequentForAMinuteAndThenBackOffTo5SecondsEachInAnEpochOfItsOwn) {
  worker_.Kill();
  Make();
  std::vector<int64_t> waits_ms;
  for (int i = 0; i < 4; ++i) {
    waits_ms.push_back((Run() - clock_.NowMicros()) / kMillisecond);
    clock_.Advance(waits_ms.back() * kMillisecond);
  }
  EXPECT_THAT(waits_ms, ElementsAre(100, 200, 200, 200));
  EXPECT_THAT(worker_.epochs(), ElementsAre(100, 101, 102, 103));
  while (clock_.NowMicros() < 60 * kSecond) clock_.Advance(Run() - clock_.NowMicros());
  waits_ms.clear();
  for (int i = 0; i < 7; ++i) {
    waits_ms.push_back((Run() - clock_.NowMicros()) / kMillisecond);
    clock_.Advance(waits_ms.back() * kMillisecond);
  }
  EXPECT_THAT(waits_ms, ElementsAre(200, 400, 800, 1600, 3200, 5000, 5000));
}

TEST_F(StepLoopRecoveryTest, AnIdleWorkerThatIsRestartedOftenIsConnectedAgainAtOnceEachTime) {
  Join();
  for (int i = 0; i < 10; ++i) {
    worker_.Kill();
    worker_.Start(SmallWorker());
    Run();
    EXPECT_FALSE(loop_->status()->is_ready);
    Advance(100 * kMillisecond);
    EXPECT_TRUE(loop_->status()->is_ready) << i;
  }
}

TEST_F(StepLoopRecoveryTest, AWorkerThatComesUpSlowlyIsNewsAtFirstAndAWarningLater) {
  worker_.Kill();
  Make();
  ::testing::internal::CaptureStderr();
  Run();
  for (int i = 0; i < 4; ++i) Advance(2 * kSecond);
  const std::string early = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(early, StartsWith("I "));
  EXPECT_THAT(early, EndsWith(" waiting for worker worker:1\n"));
  EXPECT_EQ(std::count(early.begin(), early.end(), '\n'), 1);

  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 4; ++i) Advance(5 * kSecond);
  const std::string later = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(later, StartsWith("W "));
  EXPECT_THAT(later, HasSubstr("worker worker:1 is not ready: connection refused"));
  EXPECT_EQ(std::count(later.begin(), later.end(), '\n'), 1);
}

TEST_F(StepLoopRecoveryTest, ARefusedWorkerSaysWhyAndIsAskedAgain) {
  admission_ = absl::FailedPreconditionError("another model");
  Make();
  Run();
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->last_error, "another model");
  EXPECT_FALSE(loop_->load().is_ready);
  EXPECT_THAT(worker_.refusals(), ElementsAre("another model"));
  admission_ = GenerationId{0};
  Advance(100 * kMillisecond);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->last_error, "");
}

TEST_F(StepLoopRecoveryTest, RequestsOfAnotherGenerationNeverRunOnTheWorker) {
  Join();
  worker_.HoldBack();
  const auto waiting = Submit(MakeRequest(4, 8));
  Run();
  worker_.Kill();
  Run();
  admission_ = GenerationId{2};
  worker_.Start(SmallWorker());
  Advance(100 * kMillisecond);
  ASSERT_TRUE(loop_->status()->is_ready);
  EXPECT_EQ(ReasonOf(waiting->failure())->word, "MODEL_REPLACED");
  EXPECT_EQ(loop_->load().generation, GenerationId{2});
  EXPECT_EQ(used_blocks(), 0);

  worker_.Answer();
  const auto late = Submit(MakeRequest(4, 8));
  Run();
  EXPECT_EQ(ReasonOf(late->failure())->word, "MODEL_REPLACED");
  EXPECT_TRUE(RetryDelayOf(late->failure()).has_value());
  Request current = MakeRequest(4, 8);
  current.generation = GenerationId{2};
  const auto sink = Submit(current);
  Run();
  EXPECT_EQ(sink->reason(), FinishReason::kLength);
}

TEST_F(StepLoopRecoveryTest, AWorkerThatHasSeenGreaterEpochsGetsAGreaterOne) {
  WorkerDescription worker = SmallWorker();
  worker.last_epoch = 5000;
  worker.has_session = true;
  worker_.Start(worker);
  Join();
  EXPECT_EQ(loop_->status()->epoch, 5001u);
  worker_.Kill();
  worker.last_epoch = 5001;
  worker_.Start(worker);
  Run();
  Advance(100 * kMillisecond);
  EXPECT_EQ(loop_->status()->epoch, 5002u);
}

TEST_F(StepLoopRecoveryTest, AManagerDoesNotTakeAWorkerBackFromAnotherWhileThatIsServed) {
  Join();
  worker_.Kill();
  WorkerDescription worker = SmallWorker();
  worker.last_epoch = 5000;
  worker.has_session = true;
  worker_.Start(worker);
  Run();
  Advance(100 * kMillisecond);
  EXPECT_EQ(loop_->status()->epoch, 101u) << "which the worker refuses";
  worker_.Kill();
  worker.has_session = false;
  worker_.Start(worker);
  Run();
  Advance(kSecond);
  EXPECT_EQ(loop_->status()->epoch, 5001u);
}

TEST_F(StepLoopRecoveryTest, AWorkerThatStillHasTheLastSessionOfThisManagerGetsAGreaterEpoch) {
  Join();
  const uint64_t last = loop_->status()->epoch;
  worker_.Kill();
  WorkerDescription worker = SmallWorker();
  worker.last_epoch = last;
  worker.has_session = true;
  worker_.Start(worker);
  Run();
  Advance(100 * kMillisecond);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_GT(loop_->status()->epoch, last) << "so the worker does not refuse it";
}

TEST_F(StepLoopRecoveryTest, RequestsMoveToThePoolOfAWorkerThatReturnsWithAnotherOne) {
  Join();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(MakeRequest(5 + i, 12));
    sinks.push_back(Submit(requests.back()));
  }
  for (int i = 0; i < 4; ++i) loop_->RunOnce();
  EXPECT_FALSE(sinks[0]->tokens().empty());
  worker_.Kill();
  WorkerDescription other = SmallWorker();
  other.num_blocks = 7;  // One request at a time.
  other.block_size = 3;
  worker_.Start(other);
  Run();
  Advance(200 * kMillisecond);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i])) << sinks[i]->failure();
  EXPECT_EQ(loop_->status()->blocks.total, 7);
  EXPECT_EQ(loop_->status()->stats.failed, 0);
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_EQ(loop_->load().wanted_blocks, 0);
}

TEST_F(StepLoopRecoveryTest, OnlyWhatCanNeverFitTheOtherPoolFails) {
  Join();
  worker_.HoldBack();
  const Request small = MakeRequest(5, 4);
  const auto fits = Submit(small);
  const auto large = Submit(MakeRequest(20, 30));
  Run();
  worker_.Kill();
  WorkerDescription other = SmallWorker();
  other.num_blocks = 4;
  worker_.Start(other);
  Run();
  Advance(200 * kMillisecond);
  EXPECT_EQ(large->failure().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(large->failure().message()),
              AllOf(StartsWith("the worker of the request came back with another pool: prompt has 20 tokens"),
                    HasSubstr("13 KV blocks of 4 tokens, the pool has 4")));
  EXPECT_EQ(loop_->status()->stats.failed, 1);
  worker_.Answer();
  Run();
  EXPECT_EQ(fits->tokens(), SoloTokens({}, small));
}

TEST_F(StepLoopRecoveryTest, CountersNeverFallWhenThePoolChanges) {
  Join();
  for (int i = 0; i < 12; ++i) Submit(MakeRequest(3 + i, 30));
  Run();
  const int64_t preemptions = loop_->status()->stats.preemptions;
  const int64_t recomputed_tokens = loop_->status()->stats.recomputed_tokens;
  ASSERT_GT(preemptions, 0);
  ASSERT_GT(recomputed_tokens, 0);
  worker_.Kill();
  WorkerDescription larger = SmallWorker();
  larger.num_blocks = 32;
  worker_.Start(larger);
  Run();
  Advance(100 * kMillisecond);
  ASSERT_EQ(loop_->status()->blocks.total, 32);
  EXPECT_EQ(loop_->status()->stats.preemptions, preemptions);
  EXPECT_EQ(loop_->status()->stats.recomputed_tokens, recomputed_tokens);
}

TEST_F(StepLoopRecoveryTest, AWorkerThatDrainsEndsWhatItHasAndGetsNothingNew) {
  Join();
  worker_.HoldBack();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  loop_->RunOnce();
  worker_.Drain();
  Run();
  EXPECT_FALSE(loop_->load().is_ready);
  EXPECT_FALSE(loop_->load().may_return) << "that would be to wait for what is still there";
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->last_error, "the worker is draining");
  EXPECT_TRUE(loop_->status()->is_draining);
  worker_.Answer();
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
  EXPECT_EQ(loop_->status()->last_error, "the worker has drained");
  EXPECT_EQ(loop_->status()->stats.worker_losses, 0);
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_TRUE(loop_->load().may_return);
  worker_.Start(SmallWorker());
  Advance(100 * kMillisecond);
  EXPECT_TRUE(loop_->load().is_ready);
  EXPECT_THAT(worker_.epochs(), ElementsAre(100, 101));
  EXPECT_TRUE(worker_.error().ok()) << worker_.error();
}

TEST_F(StepLoopRecoveryTest, ARequestThatWasPlacedBeforeTheDrainShowedIsServed) {
  Join();
  const Request request = MakeRequest(5, 20);
  std::shared_ptr<RecordingSink> sink;
  // The thread that places the request holds the lock that on_change waits for.
  on_change_ = [&] {
    if (sink == nullptr) sink = Submit(request);
  };
  worker_.Drain();
  Run();
  ASSERT_NE(sink, nullptr);
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
  EXPECT_THAT(worker_.epochs(), ElementsAre(100));
}

}  // namespace
}  // namespace quire
