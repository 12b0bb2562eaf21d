#include <memory>
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
  Join();
  worker_.HoldBack();
  Load(/*num_steps=*/10, /*per_step=*/3, kNever);
  calls_.clear();
  Send(kStepUs / 2);
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
  EXPECT_EQ(loop_->load().forecast.waiting_tokens, waiting_tokens + WaitingQueue::kTokensPerGroup + kPromptLength);
  loop_->RunOnce();
  loop_->Cancel(request.id);
  loop_->RunOnce();
  EXPECT_EQ(loop_->load().forecast.waiting_tokens, waiting_tokens);
  worker_.Answer();
  Run();
  EXPECT_FALSE(sink->started());
}

}  // namespace
}  // namespace quire
