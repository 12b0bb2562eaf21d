#include "kv_manager/step_loop.h"

#include <limits>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/fake_worker.h"
#include "tests/kv_manager/recording_sink.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMillisecond = 1000;
constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// A loop without a thread, on a clock that stands still, with a worker of 16 blocks of 4 tokens.
class StepLoopTest : public ::testing::Test {
 protected:
  static StepLoopOptions Options() {
    StepLoopOptions options;
    options.address = "worker:1";
    options.scheduler.watermark = 0;
    options.link.first_epoch = 100;
    return options;
  }

  void Make(const StepLoopOptions& options = Options()) {
    loop_ = std::make_unique<StepLoop>(
        options, worker_.NewClient(),
        StepLoop::Hooks{.admit_worker = [this](const WorkerDescription&) { return admission_; },
                        .on_change = [this] { ++num_changes_; }},
        &clock_);
  }
  void Join(const StepLoopOptions& options = Options()) {
    Make(options);
    Run();
    ASSERT_TRUE(loop_->status()->is_ready);
  }

  // Rounds until nothing is left to do now; returns when the loop wants to wake.
  int64_t Run() {
    int64_t wake_us = loop_->RunOnce();
    for (int i = 0; i < 300; ++i) wake_us = loop_->RunOnce();
    return wake_us;
  }
  int64_t Advance(int64_t us) {
    clock_.Advance(us);
    return Run();
  }

  Request MakeRequest(int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{++last_id_};
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.max_tokens = max_tokens;
    request.sampling.seed = last_id_;
    request.arrival_us = clock_.NowMicros();
    return request;
  }
  std::shared_ptr<RecordingSink> Submit(const Request& request) {
    auto sink = std::make_shared<RecordingSink>();
    EXPECT_TRUE(loop_->Submit(request, sink).ok());
    return sink;
  }
  int used_blocks() const { return loop_->status()->blocks.used; }

  ManualClock clock_;
  FakeWorker worker_;
  absl::Status admission_;
  int num_changes_ = 0;
  uint64_t last_id_ = 0;
  std::unique_ptr<StepLoop> loop_;
};

TEST_F(StepLoopTest, AStreamHasTheTokensOfASoloRunAndLeavesNoBlock) {
  Join();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->tokens(), SoloRun({}, request).tokens);
  EXPECT_EQ(sink->reason(), FinishReason::kLength);
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_TRUE(worker_.error().ok()) << worker_.error();
}

TEST_F(StepLoopTest, RequestsThatDoNotFitTogetherAllGetTheirOwnTokens) {
  Join();
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 12; ++i) {
    requests.push_back(MakeRequest(3 + i, 30));
    sinks.push_back(Submit(requests.back()));
  }
  Run();
  for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens(), SoloRun({}, requests[i]).tokens);
  EXPECT_GT(loop_->status()->stats.preemptions, 0);
  EXPECT_EQ(used_blocks(), 0);
}

TEST_F(StepLoopTest, TwoPlansInFlightGiveTheSameTokens) {
  StepLoopOptions options = Options();
  options.scheduler.max_plans_in_flight = 2;
  Join(options);
  worker_.HoldBack();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(worker_.num_plans(), 2);
  worker_.Answer();
  Run();
  EXPECT_EQ(sink->tokens(), SoloRun({}, request).tokens);
}

TEST_F(StepLoopTest, PromptLogprobsComeBeforeTheFirstToken) {
  Join();
  Request request = MakeRequest(9, 2);
  request.sampling.num_prompt_logprobs = 0;
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->prompt_logprobs(), SoloRun({}, request).prompt_logprobs);
}

TEST_F(StepLoopTest, AnIdleLoopSleepsUntilSomethingHappens) {
  Join();
  const auto sink = Submit(MakeRequest(5, 5));
  EXPECT_EQ(Run(), kNever);
}

TEST_F(StepLoopTest, ACancelledRequestGivesItsBlocksBackInTheNextRound) {
  Join();
  worker_.HoldBack();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  loop_->RunOnce();
  EXPECT_EQ(used_blocks(), 2);
  loop_->Cancel(request.id);
  loop_->RunOnce();
  EXPECT_EQ(used_blocks(), 0);
  worker_.Answer();
  Run();
  EXPECT_FALSE(sink->ended());
  EXPECT_TRUE(sink->tokens().empty());
  EXPECT_EQ(loop_->load().num_requests, 0);
}

TEST_F(StepLoopTest, CancellingAnUnknownRequestDoesNothing) {
  Join();
  loop_->Cancel(RequestId{77});
  Run();
  EXPECT_EQ(loop_->status()->stats.finished[static_cast<int>(FinishReason::kCancelled)], 0);
}

TEST_F(StepLoopTest, ADeadlineEndsARequestWhileTheWorkerIsBusy) {
  Join();
  worker_.HoldBack();
  Request request = MakeRequest(5, 20);
  request.deadline_us = 3 * kSecond;
  const auto sink = Submit(request);
  EXPECT_EQ(Run(), 3 * kSecond);
  Advance(3 * kSecond);
  EXPECT_EQ(sink->reason(), FinishReason::kDeadline);
  EXPECT_EQ(used_blocks(), 0);
}

TEST_F(StepLoopTest, ADeadlineEndsARequestWhileTheWorkerIsLost) {
  Join();
  worker_.HoldBack();
  Request request = MakeRequest(5, 20);
  request.deadline_us = 3 * kSecond;
  const auto sink = Submit(request);
  Run();
  worker_.Kill();
  Run();
  EXPECT_FALSE(sink->ended());
  Advance(3 * kSecond);
  EXPECT_EQ(sink->reason(), FinishReason::kDeadline);
}

TEST_F(StepLoopTest, TheInboxIsBounded) {
  StepLoopOptions options = Options();
  options.max_inbox_requests = 2;
  Join(options);
  Submit(MakeRequest(1, 1));
  Submit(MakeRequest(1, 1));
  const absl::Status status = loop_->Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 requests, the limit is 2"));
  Run();
  EXPECT_TRUE(loop_->Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>()).ok());
}

TEST_F(StepLoopTest, ARequestThatCanNeverFitFailsAndHoldsNothing) {
  Join();
  const auto sink = Submit(MakeRequest(60, 30));
  Run();
  EXPECT_FALSE(sink->failure().ok());
  EXPECT_EQ(loop_->status()->stats.refused_never_fits, 1);
  EXPECT_EQ(loop_->load().num_requests, 0);
}

TEST_F(StepLoopTest, AWorkerThatDiesAndReturnsContinuesEveryStreamWithTheSameTokens) {
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
    EXPECT_EQ(sinks[i]->tokens(), SoloRun({}, requests[i]).tokens);
    EXPECT_EQ(sinks[i]->reason(), FinishReason::kLength);
  }
  EXPECT_THAT(worker_.epochs(), ElementsAre(100, 101));
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_TRUE(worker_.error().ok()) << worker_.error();
}

TEST_F(StepLoopTest, RequestsWaitForALostWorkerAsLongAsTheGrace) {
  StepLoopOptions options = Options();
  options.worker_grace_us = 10 * kSecond;
  Join(options);
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  worker_.Kill();
  Run();
  Advance(9 * kSecond);
  EXPECT_FALSE(sink->ended());
  Advance(kSecond);
  EXPECT_EQ(sink->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(sink->failure().message()), HasSubstr("worker:1 did not come back within 10 s"));
  EXPECT_EQ(loop_->status()->waiting_requests, 0);
  const auto late = Submit(MakeRequest(5, 20));
  Run();
  EXPECT_EQ(late->failure().code(), absl::StatusCode::kUnavailable);
}

TEST_F(StepLoopTest, AWorkerThatDoesNotAnswerAPlanInTimeIsGivenUp) {
  StepLoopOptions options = Options();
  options.link.step_timeout_us = 2 * kSecond;
  Join(options);
  worker_.HoldBack();
  const Request request = MakeRequest(5, 4);
  const auto sink = Submit(request);
  EXPECT_EQ(Run(), 2 * kSecond);
  Advance(2 * kSecond);
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_THAT(loop_->status()->last_error, HasSubstr("did not answer a plan within 2000 ms"));
  worker_.Answer();
  Advance(100 * kMillisecond);
  EXPECT_EQ(sink->tokens(), SoloRun({}, request).tokens);
}

TEST_F(StepLoopTest, AnAnswerToAnotherPlanIsALossAndNotACrash) {
  Join();
  worker_.AnswerNextPlanWrongly();
  const Request request = MakeRequest(5, 4);
  const auto sink = Submit(request);
  Run();
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->stats.worker_losses, 1);
  Advance(100 * kMillisecond);
  EXPECT_EQ(sink->tokens(), SoloRun({}, request).tokens);
}

TEST_F(StepLoopTest, ARequestThatKillsItsWorkerIsGivenUpAfterThreeLosses) {
  Join();
  worker_.DieOfEveryPlan();
  const auto sink = Submit(MakeRequest(5, 4));
  Run();
  Advance(100 * kMillisecond);
  EXPECT_FALSE(sink->ended());
  Advance(200 * kMillisecond);
  EXPECT_THAT(std::string(sink->failure().message()), HasSubstr("worker:1 was lost 3 times in a row"));
  EXPECT_EQ(worker_.num_plans(), 3);
  Advance(kSecond);
  EXPECT_TRUE(loop_->status()->is_ready);
}

TEST_F(StepLoopTest, AttemptsBackOffFrom100MsTo5SecondsEachInAnEpochOfItsOwn) {
  worker_.Kill();
  Make();
  std::vector<int64_t> waits_ms;
  for (int i = 0; i < 8; ++i) {
    waits_ms.push_back((Run() - clock_.NowMicros()) / kMillisecond);
    clock_.Advance(waits_ms.back() * kMillisecond);
  }
  EXPECT_THAT(waits_ms, ElementsAre(100, 200, 400, 800, 1600, 3200, 5000, 5000));
  EXPECT_THAT(worker_.epochs(), ElementsAre(100, 101, 102, 103, 104, 105, 106, 107));
}

TEST_F(StepLoopTest, ARefusedWorkerSaysWhyAndIsAskedAgain) {
  admission_ = absl::FailedPreconditionError("another model");
  Make();
  Run();
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->last_error, "another model");
  EXPECT_FALSE(loop_->load().is_ready);
  admission_ = absl::OkStatus();
  Advance(100 * kMillisecond);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_EQ(loop_->status()->last_error, "");
}

TEST_F(StepLoopTest, AWorkerThatReturnsWithAnotherPoolStartsEmpty) {
  Join();
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(5, 20));
  Run();
  worker_.Kill();
  WorkerDescription larger = SmallWorker();
  larger.num_blocks = 32;
  worker_.Start(larger);
  Run();
  Advance(100 * kMillisecond);
  EXPECT_THAT(std::string(sink->failure().message()), HasSubstr("came back with another pool"));
  EXPECT_EQ(loop_->status()->blocks.total, 32);
  EXPECT_EQ(used_blocks(), 0);
  worker_.Answer();
  const Request request = MakeRequest(5, 4);
  const auto next = Submit(request);
  Run();
  EXPECT_EQ(next->tokens(), SoloRun({}, request).tokens);
}

TEST_F(StepLoopTest, CountersNeverFallWhenThePoolChanges) {
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

TEST_F(StepLoopTest, TheInboxKeepsOneCancelOfEachRequestThatMayStillRun) {
  Join();
  const Request ended = MakeRequest(5, 1);
  Submit(ended);
  const Request never_fits = MakeRequest(1000, 1);
  Submit(never_fits);
  Run();
  const Request request = MakeRequest(5, 20);
  Submit(request);
  ASSERT_EQ(loop_->inbox_size(), 1);
  for (int i = 0; i < 3; ++i) {
    loop_->Cancel(request.id);
    loop_->Cancel(ended.id);
    loop_->Cancel(never_fits.id);
    loop_->Cancel(RequestId{1000});
  }
  EXPECT_EQ(loop_->inbox_size(), 2);
  Run();
  EXPECT_EQ(loop_->status()->stats.finished[static_cast<int>(FinishReason::kCancelled)], 1);
}

TEST_F(StepLoopTest, StopFailsWhatHasNotEndedAndRefusesTheRest) {
  Join();
  worker_.HoldBack();
  const auto running = Submit(MakeRequest(5, 20));
  Run();
  const auto in_inbox = Submit(MakeRequest(5, 20));
  loop_->Stop();
  EXPECT_EQ(running->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(in_inbox->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(used_blocks(), 0);
  EXPECT_EQ(loop_->Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(StepLoopTest, LoadCountsWhatIsPlacedButNotStarted) {
  Join();
  worker_.HoldBack();
  Submit(MakeRequest(8, 4));
  EXPECT_EQ(loop_->load().num_requests, 1);
  EXPECT_EQ(loop_->load().wanted_blocks, 3);
  worker_.Answer();
  Run();
  EXPECT_EQ(loop_->load().num_requests, 0);
  EXPECT_EQ(loop_->load().wanted_blocks, 0);
  EXPECT_EQ(loop_->load().num_free_blocks, 16);
}

TEST_F(StepLoopTest, ChangesOfReadinessAndTheLastEndAreTold) {
  Join();
  EXPECT_EQ(num_changes_, 1);
  Submit(MakeRequest(5, 5));
  Submit(MakeRequest(5, 9));
  Run();
  EXPECT_EQ(num_changes_, 2);
  worker_.Kill();
  Run();
  EXPECT_EQ(num_changes_, 3);
}

TEST_F(StepLoopTest, StatsCountTokensAndTimes) {
  Join();
  worker_.HoldBack();
  Submit(MakeRequest(5, 1));
  Run();
  clock_.Advance(40 * kMillisecond);
  worker_.Answer();
  Run();
  const StepLoopStats& stats = loop_->status()->stats;
  EXPECT_EQ(stats.prompt_tokens, 5);
  EXPECT_EQ(stats.generated_tokens, 1);
  EXPECT_EQ(stats.finished[static_cast<int>(FinishReason::kLength)], 1);
  EXPECT_DOUBLE_EQ(stats.first_token_seconds.sum(), 0.04);
  EXPECT_DOUBLE_EQ(stats.step_seconds.sum(), 0.04);
  EXPECT_DOUBLE_EQ(stats.step_tokens.sum(), 5);
}

}  // namespace
}  // namespace quire
