// SPDX-License-Identifier: Apache-2.0

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "scheduler/waiting_queue.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

constexpr int64_t kStepUs = 10 * kMillisecond;

// Steps take kStepUs, and requests come whether or not others have ended. At most five requests of kPromptLength and
// kMaxTokens fit into the pool, so about 60 can be served in a second.
class OverloadTest : public StepLoopTest {
 protected:
  static constexpr int kPromptLength = 3;
  static constexpr int kMaxTokens = 8;

  struct Call {
    std::shared_ptr<RecordingSink> sink;
    int64_t arrival_us;
    int64_t first_token_us = kNever;
  };

  void Step() {
    clock_.Advance(kStepUs);
    worker_.AnswerOnce();
    loop_->RunOnce();
    loop_->RunOnce();
    for (Call& call : calls_) {
      if (call.first_token_us == kNever && !call.sink->tokens().empty()) call.first_token_us = clock_.NowMicros();
    }
  }

  void Send(int64_t timeout_us, int priority = 0) {
    Request request = MakeRequest(kPromptLength, kMaxTokens);
    if (timeout_us != kNever) request.deadline_us = clock_.NowMicros() + timeout_us;
    request.priority = priority;
    calls_.push_back({Submit(request), clock_.NowMicros()});
  }

  // Sends `per_step` requests per step for `num_steps` steps.
  void Load(int num_steps, int per_step, int64_t timeout_us) {
    for (int i = 0; i < num_steps; ++i) {
      for (int k = 0; k < per_step; ++k) Send(timeout_us);
      loop_->RunOnce();
      Step();
    }
  }

  // Requests that have all of their tokens, the first within this time.
  int NumGood(int64_t first_token_limit_us) const {
    int num_good = 0;
    for (const Call& call : calls_) {
      num_good += call.sink->reason().has_value() && call.first_token_us <= call.arrival_us + first_token_limit_us;
    }
    return num_good;
  }

  int NumFailed(absl::StatusCode code) const {
    int num_failed = 0;
    for (const Call& call : calls_) num_failed += call.sink->failure().code() == code;
    return num_failed;
  }

  std::vector<Call> calls_;
};

TEST_F(OverloadTest, GoodputStaysWhenMoreRequestsComeThanCanBeServed) {
  Join();
  worker_.HoldBack();
  Load(/*num_steps=*/400, /*per_step=*/3, kNever);
  const int num_served = NumGood(kNever / 2);
  ASSERT_GT(num_served, 200);

  calls_.clear();
  worker_.Answer();
  loop_.reset();
  worker_.Start(SmallWorker());
  Join();
  worker_.HoldBack();
  Load(/*num_steps=*/400, /*per_step=*/3, /*timeout_us=*/kSecond);
  EXPECT_GE(NumGood(300 * kMillisecond), num_served * 8 / 10) << "of " << num_served;
  EXPECT_EQ(NumFailed(absl::StatusCode::kDeadlineExceeded), 0);
  EXPECT_GT(NumFailed(absl::StatusCode::kResourceExhausted), 500);
  EXPECT_EQ(loop_->status()->stats.refused_overloaded, NumFailed(absl::StatusCode::kResourceExhausted));
  EXPECT_GT(loop_->status()->expected_wait_us, 0);
}

// All rows are taken at once, and their requests end at once. So the mean rate of starts says too little: who comes in
// the first half of such a time waits for all of its rest.
TEST_F(OverloadTest, RequestsThatEndTogetherMakeNobodyWaitForLongerThanTheLimit) {
  WorkerDescription worker = SmallWorker();
  worker.num_blocks = 256;
  worker_.Start(worker);
  Join();
  worker_.HoldBack();
  const auto load = [this](int num_steps) {
    for (int i = 0; i < num_steps; ++i) {
      for (int k = 0; k < 8; ++k) {
        Request request = MakeRequest(kPromptLength, /*max_tokens=*/40);
        request.deadline_us = clock_.NowMicros() + 2 * kSecond;
        calls_.push_back({Submit(request), clock_.NowMicros()});
      }
      loop_->RunOnce();
      Step();
    }
  };
  load(200);  // The first ones teach it how long requests are.
  calls_.clear();
  load(400);
  int num_served = 0;
  for (const Call& call : calls_) {
    if (call.first_token_us == kNever) continue;
    ++num_served;
    EXPECT_LE(call.first_token_us - call.arrival_us, 200 * kMillisecond + 6 * kStepUs);
  }
  EXPECT_GE(num_served, 400 / 40 * 8 * 9 / 10) << "the rows are full nearly all the time";
}

TEST_F(OverloadTest, RequestsWithoutADeadlineAreNotRefused) {
  Join();
  worker_.HoldBack();
  Load(/*num_steps=*/100, /*per_step=*/2, kNever);
  EXPECT_EQ(NumFailed(absl::StatusCode::kResourceExhausted), 0);
}

TEST_F(OverloadTest, ARequestWaitsOnlyForThoseOfItsPriority) {
  StepLoopOptions options = Options();
  options.scheduler.policy = SchedulingPolicy::kPriority;
  Join(options);
  worker_.HoldBack();
  Load(/*num_steps=*/100, /*per_step=*/2, kNever);
  calls_.clear();
  Send(kSecond, /*priority=*/1);
  Send(kSecond, /*priority=*/-1);
  Step();
  EXPECT_EQ(calls_[0].sink->failure().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(calls_[1].sink->failure().ok()) << calls_[1].sink->failure();
}

TEST_F(OverloadTest, ARequestThatCanGetNoTokenInTimeIsNotStarted) {
  StepLoopOptions options = Options();
  options.wait_limits.max_deadline_share = 1;
  Join(options);
  worker_.HoldBack();
  Load(/*num_steps=*/10, /*per_step=*/3, kNever);
  calls_.clear();
  Send(50 * kStepUs);
  loop_->RunOnce();
  ASSERT_TRUE(calls_[0].sink->failure().ok()) << calls_[0].sink->failure();
  clock_.Advance(50 * kStepUs - kStepUs / 2);  // The worker does not answer meanwhile.
  loop_->RunOnce();
  EXPECT_EQ(calls_[0].sink->failure().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(calls_[0].sink->started());
}

// The stream of a request ends its samples one by one, and the request a little later.
TEST_F(OverloadTest, ARequestWithoutSamplesIsNotGivenUp) {
  Join();
  worker_.HoldBack();
  Request request = MakeRequest(kPromptLength, kMaxTokens);
  request.deadline_us = clock_.NowMicros() + 30 * kStepUs;
  const auto sink = Submit(request);
  Load(/*num_steps=*/4, /*per_step=*/3, kNever);
  ASSERT_FALSE(sink->tokens().empty());
  loop_->CancelSample(request.id, 0);
  loop_->RunOnce();
  clock_.Advance(request.deadline_us - clock_.NowMicros() - kStepUs / 2);
  loop_->RunOnce();
  EXPECT_TRUE(sink->failure().ok()) << sink->failure();
  const int num_requests = loop_->load().num_requests;
  loop_->Cancel(request.id, FinishReason::kStopToken);
  loop_->RunOnce();
  EXPECT_EQ(loop_->load().num_requests, num_requests - 1);
}

TEST_F(OverloadTest, ACancelledRequestLeavesTheQueueUnseen) {
  Join();
  worker_.HoldBack();
  Load(/*num_steps=*/10, /*per_step=*/1, kNever);
  const int64_t waiting_tokens = loop_->load().forecast.waiting_tokens;
  const Request request = MakeRequest(kPromptLength, kMaxTokens);
  const auto sink = Submit(request);
  EXPECT_EQ(loop_->load().forecast.waiting_tokens, waiting_tokens + WaitingQueue::kTokensPerRow + kPromptLength);
  loop_->RunOnce();
  loop_->Cancel(request.id);
  loop_->RunOnce();
  EXPECT_EQ(loop_->load().forecast.waiting_tokens, waiting_tokens);
  worker_.Answer();
  Run();
  EXPECT_FALSE(sink->started());
}

TEST_F(OverloadTest, UnderFairShareTheLoadKnowsWhatTheOnlyTenantWaitsFor) {
  StepLoopOptions options = Options();
  options.scheduler.policy = SchedulingPolicy::kFairShare;
  Join(options);
  worker_.HoldBack();
  Load(/*num_steps=*/10, /*per_step=*/3, kNever);
  Request request = MakeRequest(kPromptLength, kMaxTokens);
  PromptHashes hashes(request.cache_salt, request.prompt);
  const int64_t waiting_tokens = loop_->load(request, &hashes).forecast.waiting_tokens;
  EXPECT_GT(waiting_tokens, 0);
  Submit(request);
  EXPECT_EQ(loop_->load(request, &hashes).forecast.waiting_tokens,
            waiting_tokens + WaitingQueue::kTokensPerRow + kPromptLength);
  request.tenant = "other";
  EXPECT_EQ(loop_->load(request, &hashes).forecast.waiting_tokens, 0);
  request.id = RequestId{++last_id_};
  Submit(request);
  loop_->RunOnce();
  EXPECT_EQ(loop_->load(request, &hashes).forecast.waiting_tokens, 0) << "two tenants wait";
}

// A tenant asks for more than can be served, with requests that take all rows for 500 ms each. Another tenant has
// little to ask for. It is served when the next of these requests ends.
class HogTest : public OverloadTest {
 protected:
  static constexpr int kNumRows = 8;
  static constexpr int64_t kHogRunUs = 50 * kStepUs;

  void SetUp() override {
    WorkerDescription worker = SmallWorker();
    worker.num_blocks = 256;
    worker.max_sequences = kNumRows;
    worker_.Start(worker);
    StepLoopOptions options = Options();
    options.scheduler.policy = SchedulingPolicy::kFairShare;
    options.wait_limits.max_wait_us = 4 * kSecond;
    Join(options);
    worker_.HoldBack();
  }

  Request RequestOf(const std::string& tenant) {
    Request request = MakeRequest(kPromptLength, /*max_tokens=*/tenant == "hog" ? 50 : 4);
    request.tenant = tenant;
    if (tenant == "hog") request.num_samples = kNumRows;
    return request;
  }
  void SendOf(const std::string& tenant) {
    if (tenant != "hog") return calls_.push_back({Submit(RequestOf(tenant)), clock_.NowMicros()});
    hog_.push_back(std::make_shared<FailureSink>());
    ASSERT_TRUE(Submit(RequestOf(tenant), hog_.back()).ok());
  }
  bool IsOverloaded(const std::string& tenant) {
    const Request request = RequestOf(tenant);
    PromptHashes hashes(request.cache_salt, request.prompt);
    return loop_->load(request, &hashes).forecast.is_overloaded;
  }
  // The hog sends a request every 100 ms. Once it has a backlog, the other one sends `num_others` every 700 ms.
  void LoadBoth(int num_others) {
    for (int i = 0; i < 20; ++i) SendOf("hog");
    for (int i = 0; i < 1000; ++i) {
      if (i % 10 == 0) SendOf("hog");
      if (i >= 200 && i % 70 == 10) {
        for (int k = 0; k < num_others; ++k) SendOf("other");
      }
      loop_->RunOnce();
      Step();
    }
    ASSERT_GE(calls_.size(), 10u);
  }
  int NumRefusedOfHog() const {
    int num_refused = 0;
    for (const auto& sink : hog_) {
      const auto reason = ReasonOf(sink->failure);
      num_refused += reason.has_value() && reason->word == "OVERLOADED";
    }
    return num_refused;
  }

  std::vector<std::shared_ptr<FailureSink>> hog_;
};

TEST_F(HogTest, TheBacklogOfATenantRefusesNoOtherOne) {
  LoadBoth(/*num_others=*/1);
  EXPECT_GT(NumRefusedOfHog(), 50);
  EXPECT_TRUE(IsOverloaded("hog"));
  EXPECT_FALSE(IsOverloaded("other"));
  for (const Call& call : calls_) {
    EXPECT_TRUE(call.sink->failure().ok()) << call.sink->failure();
    if (call.first_token_us == kNever) continue;  // It came at the end.
    EXPECT_LE(call.first_token_us - call.arrival_us, kHogRunUs + 4 * kStepUs);
  }
}

// All of them take as many rows as one request of the hog.
TEST_F(HogTest, SmallRequestsBehindALargeOneDoNotCountLikeLargeOnes) {
  LoadBoth(/*num_others=*/kNumRows);
  for (const Call& call : calls_) {
    EXPECT_TRUE(call.sink->failure().ok()) << call.sink->failure();
    if (call.first_token_us == kNever) continue;
    EXPECT_LE(call.first_token_us - call.arrival_us, kHogRunUs + 4 * kStepUs);
  }
}

TEST_F(OverloadTest, TheForecastLearnsTheTokensOfOneHypothesis) {
  Join();
  Request request = MakeRequest(kPromptLength, kMaxTokens);
  request.beam = BeamParams{.width = 4};
  const auto sink = Submit(request);
  Run();
  ASSERT_TRUE(sink->reason().has_value());
  EXPECT_EQ(loop_->load().forecast.output_tokens[WaitForecast::OutputSizeOf(kMaxTokens)], kMaxTokens);
}

TEST_F(OverloadTest, TheForecastLearnsFromARequestThatIsCutOff) {
  Join();
  worker_.HoldBack();
  const Request request = MakeRequest(kPromptLength, /*max_tokens=*/40);
  const auto sink = Submit(request);
  for (int i = 0; i < 10; ++i) Step();
  const auto num_tokens = static_cast<float>(sink->tokens().size());
  ASSERT_GT(num_tokens, 5);
  loop_->Cancel(request.id);
  loop_->RunOnce();
  EXPECT_EQ(loop_->load().forecast.output_tokens[WaitForecast::OutputSizeOf(40)], num_tokens);
}

TEST_F(OverloadTest, AFullQueueGivesPlacesToATenantWithFewer) {
  StepLoopOptions options = Options();
  options.scheduler.max_waiting_requests = 4;
  options.scheduler.policy = SchedulingPolicy::kFairShare;
  Join(options);
  worker_.HoldBack();
  const auto send = [&](const std::string& tenant) {
    Request request = MakeRequest(/*prompt_length=*/15, /*max_tokens=*/8);  // Two of them fit into the pool.
    request.tenant = tenant;
    auto sink = Submit(request);
    loop_->RunOnce();
    return sink;
  };
  std::vector<std::shared_ptr<RecordingSink>> hog;
  for (int i = 0; i < 10; ++i) hog.push_back(send("hog"));
  const int num_waiting = loop_->status()->waiting_requests;
  ASSERT_EQ(num_waiting, 4);
  std::vector<std::shared_ptr<RecordingSink>> other;
  for (int i = 0; i < 2; ++i) other.push_back(send("other"));
  const auto third = send("other");
  EXPECT_EQ(third->failure().code(), absl::StatusCode::kResourceExhausted) << "it would be more than its half";
  EXPECT_EQ(loop_->status()->stats.displaced, 2);
  EXPECT_EQ(loop_->status()->stats.failed, 0);
  int num_displaced = 0;
  for (const auto& sink : hog) {
    const auto reason = ReasonOf(sink->failure());
    if (!reason.has_value()) continue;
    EXPECT_EQ(reason->word, "QUEUE_FULL");
    EXPECT_EQ(reason->metadata.at("tenant"), "hog");
    EXPECT_GT(RetryDelayOf(sink->failure()), 0);
    ++num_displaced;
  }
  EXPECT_EQ(num_displaced, 2);
  worker_.Answer();
  Run();
  for (const auto& sink : other) EXPECT_TRUE(sink->reason().has_value()) << sink->failure();
}

}  // namespace
}  // namespace quire
