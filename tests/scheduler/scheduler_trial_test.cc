// SPDX-License-Identifier: Apache-2.0

// Tests how the scheduler finds the request that makes workers fail, and what the others lose by that.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"
#include "tests/sim/poison_watch.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerTrialTest : public SchedulerTest {
 protected:
  // Runs until all requests have ended. The worker dies whenever a plan computes a poison. Returns how often.
  int RunWithPoison(const std::vector<Poison>& poisons) {
    for (const Poison& poison : poisons) watch_.Add(poison);
    int num_losses = 0;
    for (int i = 0; i < 2000 && scheduler_->counts().waiting + scheduler_->counts().running > 0; ++i) {
      const StepPlan plan = Plan();
      if (plan.empty()) {
        if (sent_.empty()) {
          ADD_FAILURE() << "nothing runs";
          break;
        }
        Commit();
        continue;
      }
      EXPECT_TRUE(scheduler_->counts().suspects == 0 || scheduler_->counts().running == 1);
      const auto hit = watch_.OnPlan(plan);
      if (!hit.has_value()) {
        if (static_cast<int>(sent_.size()) == max_plans_in_flight_) Commit();
        continue;
      }
      while (sent_.size() > 1) Commit();  // What was sent before is still answered.
      ++num_losses;
      Lose(hit->first.is_named ? std::optional(hit->second) : std::nullopt);
    }
    EXPECT_EQ(blocks_->counts().used, 0);
    EXPECT_EQ(scheduler_->counts().suspects, 0);
    return num_losses;
  }

  void Lose(std::optional<SequenceId> named = std::nullopt) {
    for (const Convict& convict : scheduler_->AbandonLost(named)) {
      convicts_.push_back(convict.request);
      convict_samples_.push_back(convict.sample_index);
    }
    EXPECT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    sent_.clear();
    watch_.Reset();
    NewWorker();
  }

  PoisonWatch watch_;
  int max_plans_in_flight_ = 1;
  std::vector<RequestId> convicts_;
  std::vector<std::optional<int>> convict_samples_;
};

TEST_F(SchedulerTrialTest, EightInnocentsLoseNothingToAPoisonThatComesLast) {
  Make(100);
  for (int id = 1; id <= 8; ++id) Submit(id, 4 + id, 6);
  Step();
  Submit(9, 5, 6);
  EXPECT_LE(RunWithPoison({{.seed = 9, .position = 2}}), 4);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{9}));
  for (int id = 1; id <= 8; ++id) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTrialTest, TwoPlansInFlightChangeNothing) {
  SchedulerOptions options = Options();
  options.max_plans_in_flight = max_plans_in_flight_ = 2;
  Make(100, options);
  for (int id = 1; id <= 8; ++id) Submit(id, 4 + id, 6);
  EXPECT_LE(RunWithPoison({{.seed = 3, .position = 9}}), 4);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{3}));
  for (const int id : {1, 2, 4, 5, 6, 7, 8}) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTrialTest, EachPoisonCostsTwoLossesMore) {
  Make(100);
  for (int id = 1; id <= 8; ++id) Submit(id, 4, 6);
  EXPECT_EQ(RunWithPoison({{.seed = 2, .position = 0}, {.seed = 5, .position = 1}, {.seed = 8, .position = 3}}), 8);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{8}, RequestId{8 - 3}, RequestId{2}));
  for (const int id : {1, 3, 4, 6, 7}) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTrialTest, ANamedRequestCostsTwoLossesAndNobodyElseIsTried) {
  Make(100);
  for (int id = 1; id <= 8; ++id) Submit(id, 4, 6);
  EXPECT_EQ(RunWithPoison({{.seed = 5, .position = 6, .is_named = true}}), 2);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{5}));
  for (const int id : {1, 2, 3, 4, 6, 7, 8}) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTrialTest, APoisonInTheFifthChunkOfALongPromptIsGivenUp) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 8;
  Make(100, options);
  for (int id = 1; id <= 4; ++id) Submit(id, 4, 30);
  Submit(5, 60, 4);
  EXPECT_LE(RunWithPoison({{.seed = 5, .position = 37}}), 4);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{5}));
  for (int id = 1; id <= 4; ++id) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTrialTest, APoisonAmongManySamplesIsOneRequest) {
  Make(100);
  Request samples = MakeRequest(1, 4, 8);
  samples.num_samples = 3;
  Submit(samples);
  Submit(2, 5, 8);
  EXPECT_EQ(RunWithPoison({{.seed = 1, .position = 7}}), 4);
  EXPECT_THAT(convicts_, ElementsAre(RequestId{1}));
  EXPECT_EQ(Emitted(2), Solo(2));
}

// After a loss the first sample is recomputed one step earlier than the others, which wait for the blocks of the prompt
// that they share with it. So it passes the token at which the others were lost before they do.
TEST_F(SchedulerTrialTest, APoisonInOneOfSeveralSamplesCostsNoMoreLossesThanAnyOther) {
  for (const int sample : {0, 1, 2}) {
    Make(100);
    convicts_.clear();
    Request samples = MakeRequest(1, 4, 30);
    samples.num_samples = 3;
    Submit(samples);
    Submit(2, 5, 8);
    EXPECT_EQ(RunWithPoison({{.seed = 1, .position = 7, .sample = sample}}), 4) << sample;
    EXPECT_THAT(convicts_, ElementsAre(RequestId{1}));
    EXPECT_EQ(Emitted(2), Solo(2));
    emitted_.clear();
    watch_ = {};
  }
}

TEST_F(SchedulerTrialTest, APoisonInSomeBeamsCostsNoMoreLossesThanAnyOther) {
  for (int position = 6; position < 16; ++position) {
    for (const int sample : {0, 1}) {
      Make(100);
      watch_ = {};
      emitted_.clear();
      Request search = MakeRequest(1, 5, 14);
      search.beam = BeamParams{.width = 4, .num_return = 4};
      Submit(search);
      EXPECT_LE(RunWithPoison({{.seed = 1, .position = position, .sample = sample}}), 4) << position << " " << sample;
    }
  }
  EXPECT_GT(convicts_.size(), 15u) << "of 20, because sometimes no beam has such a token";
}

TEST_F(SchedulerTrialTest, TheSampleThatTheWorkerNamesIsThatOfTheConviction) {
  Make(100);
  Request samples = MakeRequest(1, 4, 8);
  samples.num_samples = 3;
  Submit(samples);
  EXPECT_EQ(RunWithPoison({{.seed = 1, .position = 7, .is_named = true, .sample = 2}}), 2);
  ASSERT_EQ(convict_samples_.size(), 1u);
  EXPECT_EQ(convict_samples_[0], 2);
}

TEST_F(SchedulerTrialTest, APromptThatFailsTheWorkerIsThatOfNoSample) {
  Make(100);
  Request samples = MakeRequest(1, 4, 8);
  samples.num_samples = 3;
  Submit(samples);
  EXPECT_EQ(RunWithPoison({{.seed = 1, .position = 2}}), 4);
  ASSERT_EQ(convict_samples_.size(), 1u);
  EXPECT_EQ(convict_samples_[0], std::nullopt);
}

// The sample that was in flight at the losses need not pass the place any more.
TEST_F(SchedulerTrialTest, ARequestIsClearedWhenTheSampleThatIsBehindEnds) {
  Make(100);
  Request samples = MakeRequest(1, 4, 30);
  samples.num_samples = 2;
  Submit(samples);
  for (int i = 0; i < 3; ++i) Step();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(scheduler_->counts().suspects, 0);
    Plan();
    Lose();
  }
  EXPECT_EQ(Step(), "0:0+7*") << "the first sample is recomputed one step earlier";
  EXPECT_EQ(scheduler_->counts().suspects, 1);
  EXPECT_TRUE(scheduler_->CancelSample(RequestId{1}, 1));
  Step();
  EXPECT_EQ(scheduler_->counts().suspects, 0);
}

// An operator kills the worker repeatedly, each time at another place of the prompt.
TEST_F(SchedulerTrialTest, ALongPromptOutlivesTenRestartsOfItsWorker) {
  SchedulerOptions options = Options();
  options.max_chunk_tokens = 4;
  Make(100, options);
  Submit(1, 80, 4);
  for (const int num_steps : {9, 3, 1, 7, 5, 8, 2, 4, 6, 3}) {
    for (int i = 0; i < num_steps; ++i) Step();
    Plan();
    Lose();
  }
  EXPECT_THAT(convicts_, IsEmpty());
  RunToTheEnd();
  EXPECT_EQ(Emitted(1), Solo(1));
}

TEST_F(SchedulerTrialTest, ALossWithoutPlansInFlightCountsAgainstNobody) {
  Make(100);
  Submit(1, 4, 8);
  for (int i = 0; i < 10; ++i) {
    if (i % 3 == 0) Step();
    Lose();
  }
  EXPECT_EQ(scheduler_->counts().suspects, 0);
  RunToTheEnd();
}

TEST_F(SchedulerTrialTest, ACancelledSuspectLetsTheOthersRun) {
  Make(100);
  Submit(1, 4, 3);
  Submit(2, 4, 3);
  for (int i = 0; i < 2; ++i) {
    Plan();
    Lose();
  }
  EXPECT_EQ(scheduler_->counts().suspects, 2);
  Submit(3, 4, 3);
  EXPECT_EQ(Step(), "0:0+4*") << "request 2, alone";
  EXPECT_EQ(scheduler_->ExplainWait(RequestId{3})->kind, WaitReason::Kind::kBehindOthers);
  scheduler_->Cancel(RequestId{1});
  EXPECT_EQ(scheduler_->counts().suspects, 0);
  EXPECT_EQ(Step(), "0:0+5* 1:0+4*") << "request 2 has made room for request 1";
  RunToTheEnd();
  EXPECT_EQ(Emitted(2), Solo(2));
  EXPECT_EQ(Emitted(3), Solo(3));
}

}  // namespace
}  // namespace quire
