// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/step_loop.h"

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "kv_manager/engine/work_time.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST_F(StepLoopTest, AStreamHasTheTokensOfASoloRunAndLeavesNoBlock) {
  Join();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
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
  for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i]));
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
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
}

// The worker takes a millisecond for each token.
class StepTimeTest : public StepLoopTest {
 protected:
  void Start() {
    StepLoopOptions options = Options();
    options.max_step_us = 100'000;
    WorkerDescription description = SmallWorker();
    description.num_blocks = 1000;
    description.max_context_tokens = description.max_tokens_per_step = 4000;
    worker_.Start(description);
    worker_.ReportStepTime(1000);
    Join(options);
  }
};

TEST_F(StepTimeTest, WhileNothingDecodesAStepMayTakeHalfASecond) {
  Start();
  const Request request = MakeRequest(2000, 20);
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
  const std::vector<int> tokens = worker_.plan_tokens();
  ASSERT_GT(tokens.size(), 10);
  EXPECT_EQ(tokens[0], 256) << "nothing is known yet";
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(tokens[i], 500) << i;
}

TEST_F(StepTimeTest, BesideADecodeAStepTakesNoLongerThanItMay) {
  Start();
  const Request short_one = MakeRequest(5, 40);
  const Request long_one = MakeRequest(2000, 20);
  const auto short_sink = Submit(short_one);
  const auto long_sink = Submit(long_one);
  Run();
  EXPECT_EQ(short_sink->tokens(), SoloTokens({}, short_one));
  EXPECT_EQ(long_sink->tokens(), SoloTokens({}, long_one));
  const std::vector<int> tokens = worker_.plan_tokens();
  ASSERT_GT(tokens.size(), 30);
  EXPECT_EQ(tokens[0], 5) << "the long request waits for the prefix";
  for (int i = 1; i <= 17; ++i) {
    EXPECT_LE(tokens[i], 100) << i;
    EXPECT_GT(tokens[i], 90) << i;
  }
}

TEST_F(StepLoopTest, PromptLogprobsComeBeforeTheFirstToken) {
  Join();
  Request request = MakeRequest(9, 2);
  request.sampling.num_prompt_logprobs = 0;
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->prompt_logprobs(), SoloRun({}, request).prompt_logprobs);
}

// Notes whose token has come.
class NotingSink : public RecordingSink {
 public:
  NotingSink(char name, std::string* order) : name_(name), order_(order) {}
  void OnToken(int sample_index, int position, ScoredToken token) override {
    *order_ += name_;
    RecordingSink::OnToken(sample_index, position, std::move(token));
  }

 private:
  const char name_;
  std::string* const order_;
};

TEST_F(StepLoopTest, AFirstTokenComesBeforeTheOtherTokensOfItsStep) {
  Join();
  std::string order;
  const Request old_one = MakeRequest(5, 6);
  const auto old_sink = std::make_shared<NotingSink>('a', &order);
  ASSERT_TRUE(Submit(old_one, old_sink).ok());
  while (order != "aa") loop_->RunOnce();
  const Request new_one = MakeRequest(7, 3);
  const auto new_sink = std::make_shared<NotingSink>('b', &order);
  ASSERT_TRUE(Submit(new_one, new_sink).ok());
  order.clear();
  Run();
  EXPECT_THAT(order, AnyOf("baababa", "abaabab")) << "the plan under way may be without the new request";
  EXPECT_EQ(old_sink->tokens(), SoloTokens({}, old_one));
  EXPECT_EQ(new_sink->tokens(), SoloTokens({}, new_one));
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
  request.deadline_us = kSecond / 4;
  const auto sink = Submit(request);
  EXPECT_EQ(Run(), kSecond / 4);
  Advance(kSecond / 4);
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink->failure())) << sink->failure();
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
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink->failure())) << sink->failure();
  EXPECT_THAT(sink->failure().message(), HasSubstr("its worker has not been there for "));
  EXPECT_THAT(sink->failure().message(), HasSubstr("; the connection to the worker was lost"));
}

TEST_F(StepLoopTest, TheInboxIsBounded) {
  StepLoopOptions options = Options();
  options.max_inbox_requests = 2;
  Join(options);
  Submit(MakeRequest(1, 1));
  Submit(MakeRequest(1, 1));
  const absl::Status status = Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 requests, the limit is 2"));
  Run();
  EXPECT_TRUE(Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>()).ok());
}

TEST_F(StepLoopTest, ARequestThatCanNeverFitFailsAndHoldsNothing) {
  Join();
  const auto sink = Submit(MakeRequest(60, 30));
  Run();
  EXPECT_FALSE(sink->failure().ok());
  EXPECT_EQ(loop_->status()->stats.refused_never_fits, 1);
  EXPECT_EQ(loop_->load().num_requests, 0);
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
  EXPECT_EQ(Submit(MakeRequest(1, 1), std::make_shared<RecordingSink>()).code(), absl::StatusCode::kUnavailable);
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

TEST_F(StepLoopTest, ARequestThatEndedForAStopStringIsNotACancelledOne) {
  Join();
  worker_.HoldBack();
  const Request stopped = MakeRequest(5, 20);
  Submit(stopped);
  const Request cancelled = MakeRequest(5, 20);
  Submit(cancelled);
  Run();
  loop_->Cancel(stopped.id, FinishReason::kStopToken);
  loop_->Cancel(cancelled.id);
  Run();
  const StepLoopStats& stats = loop_->status()->stats;
  EXPECT_EQ(stats.finished[static_cast<int>(FinishReason::kStopToken)], 1);
  EXPECT_EQ(stats.finished[static_cast<int>(FinishReason::kCancelled)], 1);
}

TEST_F(StepLoopTest, QueueTimeEndsWhenTheRequestIsFirstPlanned) {
  Join();
  worker_.HoldBack();
  Submit(MakeRequest(5, 1));
  clock_.Advance(30 * kMillisecond);
  Run();
  clock_.Advance(40 * kMillisecond);
  worker_.Answer();
  Run();
  EXPECT_DOUBLE_EQ(loop_->status()->stats.queue_seconds.sum(), 0.03);
  EXPECT_DOUBLE_EQ(loop_->status()->stats.first_token_seconds.sum(), 0.07);
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

TEST_F(StepLoopTest, StatsDoNotCountTheTokenOfARequestForItsPrompt) {
  Join();
  Request request = MakeRequest(5, 1);
  request.is_prompt_only = true;
  Submit(request);
  Run();
  const StepLoopStats& stats = loop_->status()->stats;
  EXPECT_EQ(stats.finished[static_cast<int>(FinishReason::kLength)], 1);
  EXPECT_EQ(stats.generated_tokens, 0);
  EXPECT_DOUBLE_EQ(stats.request_generated_tokens.sum(), 0);
  EXPECT_DOUBLE_EQ(stats.request_longest_output.sum(), 0);
}

// Takes the events of any number of samples.
class SamplesSink : public RequestSink {
 public:
  void OnStarted(int) override {}
  void OnPromptLogprobs(int, std::vector<ScoredToken>) override {}
  void OnToken(int, int, ScoredToken) override {}
  void OnNumericsChanged(int, int) override {}
  void OnFinished(const Finished&) override {}
  void OnFailed(absl::Status) override {}
};

TEST_F(StepLoopTest, StatsTellWhatARequestAskedForAndItsLongestOutput) {
  Join();
  worker_.HoldBack();
  Request request = MakeRequest(5, 3);
  request.num_samples = 2;
  ASSERT_TRUE(Submit(request, std::make_shared<SamplesSink>()).ok());
  for (int step = 0; step < 3; ++step) {
    Run();
    clock_.Advance(10 * kMillisecond);
    worker_.AnswerOnce();
  }
  Run();
  const StepLoopStats& stats = loop_->status()->stats;
  EXPECT_EQ(stats.generated_tokens, 6);
  EXPECT_DOUBLE_EQ(stats.request_longest_output.sum(), 3);
  EXPECT_DOUBLE_EQ(stats.request_max_tokens.sum(), 3);
  EXPECT_DOUBLE_EQ(stats.request_outputs.sum(), 2);
  EXPECT_DOUBLE_EQ(stats.request_computed_tokens.sum(), 5);
  EXPECT_DOUBLE_EQ(stats.running_seconds.sum(), 0.03);
  EXPECT_DOUBLE_EQ(stats.token_seconds.sum(), 0.01);
}

// It takes 2 ms to send a plan.
class SlowClient : public WorkerClient {
 public:
  SlowClient(std::unique_ptr<WorkerClient> client, ManualClock* clock) : client_(std::move(client)), clock_(clock) {}

  void SetListener(Listener* listener) override { client_->SetListener(listener); }
  void Describe(uint64_t epoch) override { client_->Describe(epoch); }
  void Open(uint64_t epoch, bool adopts) override { client_->Open(epoch, adopts); }
  void Refuse(const std::string& reason) override { client_->Refuse(reason); }
  void Send(const StepPlan& plan) override {
    clock_->Advance(2 * kMillisecond);
    client_->Send(plan);
  }
  void Probe(uint64_t epoch) override { client_->Probe(epoch); }
  void Close() override { client_->Close(); }

 private:
  const std::unique_ptr<WorkerClient> client_;
  ManualClock* const clock_;
};

// It takes 3 ms to hand a token over.
class SlowSink : public RecordingSink {
 public:
  explicit SlowSink(ManualClock* clock) : clock_(clock) {}

  void OnToken(int sample_index, int position, ScoredToken token) override {
    clock_->Advance(3 * kMillisecond);
    RecordingSink::OnToken(sample_index, position, std::move(token));
  }

 private:
  ManualClock* const clock_;
};

TEST_F(StepLoopTest, TheManagersPartOfAStepIsSendingAndHandingOverWithoutTheWorkersTime) {
  const StepLoopHooks hooks{.admit_worker = [](const WorkerDescription&) { return GenerationId{0}; },
                            .on_change = [] {}};
  for (const int max_plans_in_flight : {1, 2}) {
    StepLoopOptions options = Options();
    options.scheduler.max_plans_in_flight = max_plans_in_flight;
    FakeWorker worker;
    loop_ =
        std::make_unique<StepLoop>(options, std::make_unique<SlowClient>(worker.NewClient(), &clock_), hooks, &clock_);
    Run();
    worker.HoldBack();
    ASSERT_TRUE(Submit(MakeRequest(5, 4), std::make_shared<SlowSink>(&clock_)).ok());
    for (int step = 0; step < 4; ++step) {
      Run();
      clock_.Advance(40 * kMillisecond);
      worker.AnswerOnce();
    }
    Run();
    const Histogram& parts = loop_->status()->stats.manager_step_seconds;
    EXPECT_EQ(std::accumulate(parts.counts().begin(), parts.counts().end(), int64_t{0}), 4);
    EXPECT_NEAR(parts.sum(), 4 * 0.005, 1e-9);
    loop_.reset();
  }
}

// For each token it works, or waits as a thread does that has lost its core.
class BusySink : public RecordingSink {
 public:
  explicit BusySink(bool works) : works_(works) {}

  void OnToken(int sample_index, int position, ScoredToken token) override {
    const ManualClock clock;
    const WorkTime begin = WorkTime::Now(clock);
    while (works_ && (WorkTime::Now(clock) - begin).cpu_us < 5 * kMillisecond) {
    }
    if (!works_) absl::SleepFor(absl::Milliseconds(20));
    RecordingSink::OnToken(sample_index, position, std::move(token));
  }

 private:
  const bool works_;
};

TEST_F(StepLoopTest, TheCpuTimeOfTheManagersPartDoesNotCountWhileItsThreadWaits) {
  for (const bool works : {true, false}) {
    FakeWorker worker;
    loop_ = std::make_unique<StepLoop>(
        Options(), worker.NewClient(),
        StepLoopHooks{.admit_worker = [](const WorkerDescription&) { return GenerationId{0}; }, .on_change = [] {}},
        &clock_);
    Run();
    ASSERT_TRUE(Submit(MakeRequest(5, 4), std::make_shared<BusySink>(works)).ok());
    for (int step = 0; step < 5; ++step) Run();
    const Histogram& cpu = loop_->status()->stats.manager_step_cpu_seconds;
    EXPECT_EQ(std::accumulate(cpu.counts().begin(), cpu.counts().end(), int64_t{0}), 4);
    if (works) {
      EXPECT_GE(cpu.sum(), 4 * 0.005);
    } else {
      EXPECT_LT(cpu.sum(), 4 * 0.010);
    }
    loop_.reset();
  }
}

}  // namespace
}  // namespace quire
