// SPDX-License-Identifier: Apache-2.0

// Tests the questions of other threads to a step loop, and pins, which they ask for.

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using Kind = WaitReason::Kind;

class StepLoopQuestionsTest : public StepLoopTest {
 protected:
  // Asks a question and runs one round.
  void Ask(LoopQuestion question) {
    bool is_answered = false;
    ASSERT_TRUE(loop_
                    ->Ask([&](const LoopView& view) {
                      is_answered = true;
                      question(view);
                    })
                    .ok());
    EXPECT_FALSE(is_answered);
    loop_->RunOnce();
    EXPECT_TRUE(is_answered);
  }

  // How many tokens of a prompt of this length are pinned now.
  int Pin(int prompt_length, int64_t ttl_us) {
    int num_tokens = -1;
    Ask([&](const LoopView& view) {
      num_tokens = view.blocks->Pin("", MakeRequest(prompt_length, 1).prompt, view.now_us + ttl_us).value();
    });
    return num_tokens;
  }
  int pinned_blocks() const { return loop_->status()->blocks.pinned; }
};

TEST_F(StepLoopQuestionsTest, AQuestionIsBehindWhatWasSubmittedBefore) {
  Join();
  worker_.HoldBack();
  const Request request = MakeRequest(5, 20);
  const auto sink = Submit(request);
  Ask([&](const LoopView& view) {
    EXPECT_EQ(view.address, "worker:1");
    EXPECT_TRUE(view.link.is_ready());
    EXPECT_EQ(view.scheduler->ExplainWait(request.id)->kind, Kind::kRuns);
    EXPECT_EQ(view.blocks->counts().used, 2);
  });
}

TEST_F(StepLoopQuestionsTest, BeforeTheWorkerHasJoinedThereIsNothingToSee) {
  worker_.Kill();
  Make();
  Ask([](const LoopView& view) {
    EXPECT_EQ(view.scheduler, nullptr);
    EXPECT_EQ(view.blocks, nullptr);
  });
}

TEST_F(StepLoopQuestionsTest, StopAnswersWhatIsAskedAndRefusesTheRest) {
  Join();
  int num_answers = 0;
  ASSERT_TRUE(loop_
                  ->Ask([&](const LoopView& view) {
                    ++num_answers;
                    EXPECT_EQ(view.scheduler, nullptr);
                  })
                  .ok());
  loop_->Stop();
  EXPECT_EQ(num_answers, 1);
  EXPECT_EQ(loop_->Ask([](const LoopView&) {}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(StepLoopQuestionsTest, QuestionsAreBounded) {
  StepLoopOptions options = Options();
  options.max_questions = 1;
  Join(options);
  EXPECT_TRUE(loop_->Ask([](const LoopView&) {}).ok());
  const absl::Status status = loop_->Ask([](const LoopView&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker:1 has 1 questions to answer, the limit is 1"));
  loop_->RunOnce();
  EXPECT_TRUE(loop_->Ask([](const LoopView&) {}).ok());
}

TEST_F(StepLoopQuestionsTest, APinHoldsWhatIsCachedUntilItExpires) {
  Join();
  EXPECT_EQ(Pin(9, kSecond), 0) << "nothing is cached";
  Submit(MakeRequest(9, 1));
  Run();
  EXPECT_EQ(Pin(9, 3 * kSecond), 8);
  EXPECT_EQ(pinned_blocks(), 2);
  EXPECT_EQ(used_blocks(), 2);
  EXPECT_EQ(Run(), 3 * kSecond) << "when the loop wakes";
  Advance(3 * kSecond);
  EXPECT_EQ(pinned_blocks(), 0);
  EXPECT_EQ(used_blocks(), 0);
}

TEST_F(StepLoopQuestionsTest, PinsGiveWayToARequestThatCouldNotRunOtherwise) {
  Join();
  Submit(MakeRequest(9, 1));
  Run();
  ASSERT_EQ(Pin(9, 1000 * kSecond), 8);
  Request large = MakeRequest(50, 14);  // All 16 blocks, none of them cached.
  for (TokenId& token : large.prompt) token += 100;
  const auto sink = Submit(large);
  Run();
  EXPECT_EQ(sink->tokens(), SoloTokens({}, large));
  EXPECT_EQ(pinned_blocks(), 0);
}

TEST_F(StepLoopQuestionsTest, PinsStayWhileRequestsCanGoOnWithoutTheirBlocks) {
  Join();
  Submit(MakeRequest(9, 1));
  Run();
  ASSERT_EQ(Pin(9, 1000 * kSecond), 8);
  std::vector<Request> requests;
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(MakeRequest(10, 20));
    for (TokenId& token : requests.back().prompt) token += 100 * (i + 1);
    sinks.push_back(Submit(requests.back()));
  }
  Run();
  for (size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i]->tokens(), SoloTokens({}, requests[i]));
  EXPECT_GT(loop_->status()->stats.preemptions, 0);
  EXPECT_EQ(pinned_blocks(), 2);
}

}  // namespace
}  // namespace quire
