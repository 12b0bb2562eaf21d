// SPDX-License-Identifier: Apache-2.0

// Tests how requests move between the step loops of one manager.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/step_loop.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

// A loop to which another one gives requests, and which may give its own away.
class AdoptingLoopTest : public StepLoopTest {
 protected:
  // The loop has the hooks of a manager with other workers.
  void JoinOthers(StepLoopOptions options = Options()) {
    loop_ = std::make_unique<StepLoop>(
        options, worker_.NewClient(),
        StepLoopHooks{.admit_worker = [this](const WorkerDescription&) { return admission_; },
                      .on_change = [] {},
                      .move_request =
                          [this](const MoveWish& wish, TakeRequest take) {
                            if (!accepts_) return false;
                            has_accepted_delay_ = wish.accepts_delay;
                            has_needed_room_ = wish.needs_room;
                            moved_.push_back(take());
                            return true;
                          },
                      .find_movable =
                          [this](absl::Span<const MoveWish> wishes) {
                            has_accepted_delay_ = !wishes.empty() && wishes[0].accepts_delay;
                            num_wishes_ = static_cast<int>(wishes.size());
                            return accepts_ ? 0 : wishes.size();
                          }},
        &clock_);
    Run();
    ASSERT_TRUE(loop_->status()->is_ready);
  }

  // The request has left a scheduler in which it has not run.
  static MovingRequest Moving(const Request& request, std::shared_ptr<RequestSink> sink) {
    return {MovedRequest(request),
            {.sink = std::move(sink), .num_prompt_tokens = static_cast<int>(request.prompt.size())},
            {.is_cancellable = true}};
  }
  void Adopt(MovingRequest moving) {
    PromptHashes hashes(moving.request.request().cache_salt, moving.request.request().prompt);
    loop_->Adopt(std::move(moving), &hashes);
  }
  void Adopt(const Request& request, std::shared_ptr<RequestSink> sink) { Adopt(Moving(request, std::move(sink))); }

  bool accepts_ = true;  // Other workers take requests.
  std::vector<MovingRequest> moved_;
  bool has_accepted_delay_ = false;  // The last wish did.
  bool has_needed_room_ = false;
  int num_wishes_ = 0;
};

TEST_F(AdoptingLoopTest, ARequestOnItsWayEndsWithTheLoop) {
  Join();
  const auto sink = std::make_shared<RecordingSink>();
  Adopt(MakeRequest(6, 4), sink);
  EXPECT_EQ(loop_->load().num_requests, 1);
  loop_->Stop();
  EXPECT_EQ(sink->failure().code(), absl::StatusCode::kUnavailable);
}

TEST_F(AdoptingLoopTest, ARequestOnItsWayCountsAsLoadUntilItRuns) {
  Join();
  worker_.HoldBack();
  Request request = MakeRequest(6, 4);
  Adopt(request, std::make_shared<RecordingSink>());
  EXPECT_EQ(loop_->load().wanted_blocks, 2);
  loop_->RunOnce();
  EXPECT_EQ(loop_->status()->running_requests, 1);
  EXPECT_EQ(loop_->status()->blocks.used, 2) << "from now on the blocks are allocated";
  EXPECT_EQ(loop_->load().wanted_blocks, 0) << "no block counts twice, although the first token has not come";
  worker_.Answer();
  Run();
  EXPECT_EQ(loop_->load().wanted_blocks, 0);
}

TEST_F(AdoptingLoopTest, ARequestThatComesToAnotherGenerationMovesOn) {
  admission_ = GenerationId{2};
  JoinOthers();
  const auto moved = std::make_shared<RecordingSink>();
  const auto stranded = std::make_shared<RecordingSink>();
  for (const auto& sink : {moved, stranded}) {
    Request request = MakeRequest(6, 4);
    request.generation = GenerationId{1};
    Adopt(request, sink);
    Run();
    accepts_ = false;
  }
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_TRUE(moved_[0].wishes.is_cancellable);
  EXPECT_EQ(moved_[0].live.sink, moved);
  EXPECT_EQ(moved->failure(), absl::OkStatus());
  EXPECT_EQ(stranded->failure().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(loop_->load().num_requests, 0);
}

// The loop takes the request and its cancels together.
TEST_F(AdoptingLoopTest, ACancelThatComesWithARequestGoesAlongWithIt) {
  admission_ = GenerationId{2};
  JoinOthers();
  Request request = MakeRequest(6, 4);
  request.generation = GenerationId{1};
  Adopt(request, std::make_shared<RecordingSink>());
  loop_->CancelSample(request.id, 0);
  loop_->Cancel(request.id, FinishReason::kStopToken);
  Run();
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_FALSE(moved_[0].wishes.is_cancellable);
  EXPECT_EQ(moved_[0].wishes.cancelled, FinishReason::kStopToken);
  EXPECT_EQ(moved_[0].wishes.cancelled_samples, std::vector<int>{0});
}

// It was placed here before the worker came back with another model.
TEST_F(AdoptingLoopTest, ASubmittedRequestOfAnotherGenerationMoves) {
  admission_ = GenerationId{2};
  JoinOthers();
  Request request = MakeRequest(6, 4);
  request.generation = GenerationId{1};
  const auto sink = Submit(request);
  Run();
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_EQ(moved_[0].request.id(), request.id);
  EXPECT_EQ(moved_[0].live.num_prompt_tokens, 6);
  EXPECT_TRUE(moved_[0].wishes.is_cancellable);
  EXPECT_EQ(sink->failure(), absl::OkStatus());
  EXPECT_EQ(loop_->status()->stats.prompt_tokens, 6) << "it is counted once, where it came";
  EXPECT_EQ(loop_->status()->stats.moved_requests, 1);
  EXPECT_EQ(loop_->load().num_requests, 0);
  accepts_ = false;
  request.id = RequestId{77};
  EXPECT_EQ(Submit(request)->failure(), absl::OkStatus());
  Run();
  EXPECT_EQ(loop_->status()->stats.refused_worker_lost, 1);
}

// The worker was lost and has come back with a smaller pool before the request was here.
TEST_F(AdoptingLoopTest, ARequestThatTheSchedulerRefusesMovesOnOnce) {
  JoinOthers();
  const auto moved = std::make_shared<RecordingSink>();
  const auto stranded = std::make_shared<RecordingSink>();
  Request request = MakeRequest(8, 40);
  request.num_samples = 4;  // 42 blocks; the pool has 16.
  Adopt(request, moved);
  Run();
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_EQ(moved->failure(), absl::OkStatus());
  EXPECT_TRUE(moved_[0].was_refused);
  EXPECT_EQ(moved_[0].request.request().prompt.size(), 8u);
  MovingRequest again = Moving(request, stranded);
  again.was_refused = true;
  Adopt(std::move(again));
  Run();
  EXPECT_EQ(moved_.size(), 1u);
  EXPECT_EQ(stranded->failure().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop_->load().num_requests, 0);
}

TEST_F(AdoptingLoopTest, ADrainThatCanMoveNothingDoesNotHoldUpPlans) {
  StepLoopOptions options = Options();
  options.scheduler.max_plans_in_flight = 2;
  JoinOthers(options);
  accepts_ = false;
  worker_.HoldBack();
  Submit(MakeRequest(6, 1));
  Run();
  ASSERT_EQ(loop_->status()->num_plans_in_flight, 1) << "the first plan has the last token";
  loop_->SetDrainedByOperator(true, /*migrates=*/true);
  Submit(MakeRequest(6, 40));
  Run();
  EXPECT_EQ(num_wishes_, 2);
  EXPECT_EQ(loop_->status()->num_plans_in_flight, 2) << "the second plan was sent before the first was answered";
  accepts_ = true;
  Advance(kSecond);
  EXPECT_TRUE(moved_.empty()) << "plans are in flight";
  worker_.AnswerOnce();
  Run();
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_EQ(moved_[0].live.num_generated_tokens, 1);
  EXPECT_TRUE(has_needed_room_);
  EXPECT_FALSE(has_accepted_delay_);
}

TEST_F(AdoptingLoopTest, AWorkerWhoseProcessIsStoppedIsLostAfterOneAndAHalfSeconds) {
  JoinOthers();
  worker_.HoldBack();
  Submit(MakeRequest(6, 40));
  Run();
  worker_.StopProcess();
  EXPECT_EQ(Advance(kSecond / 2), kSecond) << "to ask again";
  Advance(kSecond - 1);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_TRUE(moved_.empty());
  Advance(1);
  EXPECT_FALSE(loop_->status()->is_ready);
  EXPECT_NE(loop_->status()->last_error.find("has not answered for 1000 ms"), std::string::npos);
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_FALSE(moved_[0].request.group().suspicion().is_suspect());
  EXPECT_EQ(moved_[0].request.group().suspicion().num_losses(), 0) << "no request makes a whole process stop";
}

class PausedProcessTest : public AdoptingLoopTest, public ::testing::WithParamInterface<int64_t> {};
// The second one is longer than the grace.
INSTANTIATE_TEST_SUITE_P(FailoverAfter, PausedProcessTest, ::testing::Values(3 * kSecond, 20 * kSecond));

TEST_P(PausedProcessTest, AShortPauseCostsNothingWithFailoverAfter) {
  StepLoopOptions options = Options();
  options.failover_after_us = GetParam();
  JoinOthers(options);
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(6, 40));
  Run();
  worker_.StopProcess();
  int64_t pause_us = 0;
  for (; loop_->status()->is_ready && pause_us < 60 * kSecond; pause_us += kSecond / 2) {
    EXPECT_TRUE(moved_.empty());
    Advance(kSecond / 2);
  }
  EXPECT_EQ(pause_us, 3 * kSecond / 2 + options.failover_after_us);
  EXPECT_EQ(moved_.size(), 1u) << "it moves at once, because it has waited already";
  EXPECT_EQ(sink->failure(), absl::OkStatus());
}

TEST_F(AdoptingLoopTest, AWorkerWhoseProcessIsStoppedIsKeptWhileNobodyElseCanGoOn) {
  JoinOthers();
  accepts_ = false;
  worker_.HoldBack();
  const auto sink = Submit(MakeRequest(6, 4));
  Run();
  worker_.StopProcess();
  for (int i = 0; i < 40; ++i) Advance(kSecond / 2);
  EXPECT_TRUE(loop_->status()->is_ready);
  accepts_ = true;
  Advance(kSecond / 2);
  EXPECT_FALSE(loop_->status()->is_ready) << "another worker has come";
  EXPECT_EQ(moved_.size(), 1u);
}

TEST_F(AdoptingLoopTest, AWorkerThatAnswersProbesMayTakeLongForAStep) {
  JoinOthers();
  worker_.HoldBack();
  Submit(MakeRequest(6, 40));
  for (int i = 0; i < 40; ++i) Advance(kSecond / 2);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_TRUE(moved_.empty());
}

TEST_F(AdoptingLoopTest, AProcessThatWasPausedAndAnswersAgainIsNotSilentAnyMore) {
  JoinOthers();
  accepts_ = false;
  worker_.HoldBack();
  Submit(MakeRequest(6, 40));
  Run();
  worker_.StopProcess();
  Advance(kSecond);
  worker_.ContinueProcess();
  Advance(kSecond / 2);
  accepts_ = true;
  for (int i = 0; i < 20; ++i) Advance(kSecond / 2);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_TRUE(moved_.empty());
}

TEST_F(AdoptingLoopTest, AManagerThatWasPausedItselfFirstReadsWhatHasCome) {
  JoinOthers();
  worker_.HoldBack();
  Submit(MakeRequest(6, 40));
  Run();
  worker_.StopProcess();  // Its answers lie unread in the connection.
  Advance(kSecond / 2);
  Advance(30 * kSecond);
  EXPECT_TRUE(loop_->status()->is_ready);
  worker_.ContinueProcess();
  for (int i = 0; i < 4; ++i) Advance(kSecond / 2);
  EXPECT_TRUE(loop_->status()->is_ready);
  EXPECT_TRUE(moved_.empty());
}

// After an attempt that moved nothing, the next one is due in a second.
class SecondReasonToMoveTest : public AdoptingLoopTest {
 public:
  SecondReasonToMoveTest() {
    JoinOthers();
    worker_.HoldBack();
    Submit(MakeRequest(6, 40));
    Run();
    accepts_ = false;
    loop_->SetDrainedByOperator(true, /*migrates=*/true);
    Run();
    accepts_ = true;
    loop_->SetDrainedByOperator(false);
    Run();
  }

  void ExpectMove() {
    Run();
    worker_.AnswerOnce();
    Run();
    EXPECT_EQ(moved_.size(), 1u);
  }
};

TEST_F(SecondReasonToMoveTest, TheOperatorWhoAsksAgainDoesNotWait) {
  loop_->SetDrainedByOperator(true, /*migrates=*/true);
  ExpectMove();
}

TEST_F(SecondReasonToMoveTest, AWorkerThatIsToldToStopDoesNotWait) {
  worker_.Drain();
  ExpectMove();
}

TEST_F(AdoptingLoopTest, RequestsOfALostWorkerAcceptDelayAfterHalfOfTheGrace) {
  JoinOthers();
  accepts_ = false;
  worker_.HoldBack();
  Submit(MakeRequest(6, 4));
  Run();
  worker_.Kill();
  Run();
  EXPECT_EQ(num_wishes_, 1);
  EXPECT_FALSE(has_accepted_delay_);
  Advance(Options().worker_grace_us / 2 - 1);
  EXPECT_FALSE(has_accepted_delay_);
  Advance(1);
  EXPECT_FALSE(has_accepted_delay_) << "the next attempt is due in 100 ms";
  Advance(kSecond / 10);
  EXPECT_TRUE(has_accepted_delay_);
}

// It must not wait for a worker that cannot continue it any more.
TEST_F(AdoptingLoopTest, ASuspectMovesWhenItsWorkerComesBackInAnotherGeneration) {
  admission_ = GenerationId{1};
  JoinOthers();
  worker_.HoldBack();
  Request request = MakeRequest(6, 4);
  request.generation = GenerationId{1};
  const auto sink = Submit(request);
  accepts_ = false;
  for (int i = 0; i < 2; ++i) {
    Run();
    ASSERT_EQ(loop_->status()->num_plans_in_flight, 1);
    worker_.Kill();
    Run();
    worker_.Start(SmallWorker());
    worker_.HoldBack();
    Advance(kSecond);
  }
  EXPECT_TRUE(loop_->load().is_on_trial);
  accepts_ = true;
  worker_.Kill();
  Run();
  EXPECT_TRUE(moved_.empty()) << "a suspect waits for its own worker";
  admission_ = GenerationId{2};
  worker_.Start(SmallWorker());
  Advance(kSecond);
  ASSERT_EQ(moved_.size(), 1u);
  EXPECT_TRUE(has_accepted_delay_);
  EXPECT_EQ(sink->failure(), absl::OkStatus());
}

}  // namespace
}  // namespace quire
