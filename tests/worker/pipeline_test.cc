// SPDX-License-Identifier: Apache-2.0

// Two steps that run at the same time, which asynchronous backends allow.

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"
#include "worker/warm_up.h"

namespace quire {
namespace {

constexpr int kNumSteps = 14;

v1::RowSampling Seeded(uint64_t seed) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(0.9f);
  sampling.set_seed(seed);
  sampling.set_num_logprobs_plus_one(3);
  return sampling;
}

// Draws the same token in nearly every step, whatever the model computes.
v1::RowSampling Biased() {
  v1::RowSampling sampling = Seeded(7);
  sampling.add_bias_token_ids(11);
  sampling.add_biases(15);
  return sampling;
}

// Draws that token less with each time that it has occurred.
v1::RowSampling Penalised() {
  v1::RowSampling sampling = Biased();
  sampling.set_presence_penalty(0.5f);
  sampling.set_frequency_penalty(2.0f);
  sampling.set_repetition_penalty(1.3f);
  return sampling;
}

// The plans of a session with a prompt of 5 tokens and one of 9 tokens. Step 4 forks the first one, and in step 8 a
// prompt of 6 tokens takes the row of the fork.
std::vector<v1::StepPlan> Session(const v1::RowSampling& second) {
  std::vector<v1::StepPlan> plans;
  for (int step = 1; step <= kNumSteps; ++step) {
    PlanBuilder plan(step);
    if (step == 1) {
      plan.Start(0, Tokens(3, 5), Seeded(1)).Slice(0, 0, 5, true, Blocks(0, 8));
      plan.Start(1, Tokens(20, 9), second).Slice(1, 0, 9, true, Blocks(8, 8));
    } else {
      plan.Slice(0, 5 + step - 2, 1, true).Slice(1, 9 + step - 2, 1, true);
    }
    // The fork first writes position 7, in a copy of the parent's second block.
    if (step == 4) plan.Fork(2, 0, 1).Copy(1, 17).Slice(2, 5 + step - 2, 1, true, {0, 17, 18, 19, 20, 21});
    if (step > 4 && step < 8) plan.Slice(2, 5 + step - 2, 1, true);
    if (step == 8) plan.Start(2, Tokens(40, 6)).Slice(2, 0, 6, true, Blocks(24, 8));
    if (step > 8) plan.Slice(2, 6 + step - 9, 1, true);
    plans.push_back(plan.plan());
  }
  return plans;
}

std::vector<std::string> RunOneByOne(TestWorker* worker, const std::vector<v1::StepPlan>& plans) {
  worker->executor().Reset();
  std::vector<std::string> results;
  for (const v1::StepPlan& plan : plans) {
    absl::StatusOr<v1::StepResult> result = worker->Run(plan);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) break;
    result->clear_duration_us();
    results.push_back(result->SerializeAsString());
  }
  return results;
}

struct PipelinedRun {
  std::vector<std::string> results;
  int num_overlapping = 0;  // Plans that began before the one before them was finished.
};

PipelinedRun RunPipelined(TestWorker* worker, const std::vector<v1::StepPlan>& plans) {
  Executor& executor = worker->executor();
  executor.Reset();
  PipelinedRun run;
  const auto finish = [&] {
    v1::StepResult result;
    executor.Finish(&result);
    result.clear_duration_us();
    run.results.push_back(result.SerializeAsString());
  };
  for (const v1::StepPlan& plan : plans) {
    while (!executor.CanBegin(plan)) finish();
    run.num_overlapping += executor.num_begun() > 0;
    const absl::Status status = executor.Begin(plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  while (executor.num_begun() > 0) finish();
  return run;
}

TEST(PipelineTest, StepsThatOverlapGiveWhatStepsOneByOneGive) {
  TestWorker worker;
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  const PipelinedRun run = RunPipelined(&worker, plans);
  EXPECT_EQ(run.results, RunOneByOne(&worker, plans));
  // Three steps do not overlap: the first one, the fork, which needs the tokens of its parent, and the start in a row
  // that is still drawing.
  EXPECT_EQ(run.num_overlapping, worker.backend().IsAsynchronous() ? kNumSteps - 3 : 0);
}

TEST(PipelineTest, PenaltiesCountTheTokenThatIsStillDrawn) {
  TestWorker worker;
  const std::vector<v1::StepPlan> plans = Session(Penalised());
  const PipelinedRun run = RunPipelined(&worker, plans);
  EXPECT_EQ(run.results, RunOneByOne(&worker, plans));
  EXPECT_NE(run.results, RunOneByOne(&worker, Session(Biased()))) << "the penalties matter";
  EXPECT_EQ(run.num_overlapping, worker.backend().IsAsynchronous() ? kNumSteps - 3 : 0);
}

TEST(PipelineTest, APlanWaitsForTokensThatBadWordsAreMatchedWith) {
  TestWorker worker;
  v1::RowSampling sampling = Seeded(7);
  sampling.add_bad_word_lengths(2);
  sampling.add_bad_word_token_ids(1);
  sampling.add_bad_word_token_ids(2);
  const std::vector<v1::StepPlan> plans = Session(sampling);
  const PipelinedRun run = RunPipelined(&worker, plans);
  EXPECT_EQ(run.results, RunOneByOne(&worker, plans));
  EXPECT_EQ(run.num_overlapping, 0);
}

TEST(PipelineTest, LayersThatAreRepeatedGiveTheBitsOfLaunchedOnes) {
  TestWorker launching({.repeats_layers = false});
  TestWorker repeating;
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  EXPECT_EQ(RunOneByOne(&repeating, plans), RunOneByOne(&launching, plans));
  if (launching.device() == nullptr) return;  // Only the emulated GPU counts.
  EXPECT_EQ(launching.device()->num_replays(), 0);
  EXPECT_GE(repeating.device()->num_replays(), kNumSteps / 2);
}

// Decode steps of two to four sequences. A GPU cuts long contexts into splits of 256 tokens and merges them, and rounds
// the numbers of tokens, work items and merges of a step up to powers of two. So there are steps with the same number
// of tokens but different launches; {0, 2} and {0, 1, 2}, with the same launches but different numbers of tokens; and
// {0, 2, 3} and {0, 1, 2, 3}, with different numbers of items only. Only the last five tokens of a prompt are computed;
// the pool contains zeros for the others.
std::vector<v1::StepPlan> SessionOfShortAndLongContexts() {
  constexpr uint32_t kComputed = 5, kBlocks = 20;
  uint32_t lengths[] = {5, 9, 260, 261};
  std::vector<v1::StepPlan> plans;
  PlanBuilder prompts(1);
  for (uint32_t row = 0; row < 4; ++row) {
    const std::vector<TokenId> tokens(lengths[row], TokenId(3 + 20 * row));
    prompts.Start(row, tokens, Seeded(row));
    prompts.Slice(row, lengths[row] - kComputed, kComputed, true, Blocks(kBlocks * row, kBlocks));
  }
  plans.push_back(prompts.plan());
  using Rows = std::vector<uint32_t>;
  // The largest step comes first, because a later one that needs more memory would let all recordings be forgotten.
  for (const Rows& rows : {Rows{0, 1, 2, 3},
                           {0, 1},
                           {0, 1},
                           {2, 3},
                           {0, 1},
                           {0, 2},
                           {2, 3},
                           {0, 1},
                           {0, 1, 2},
                           {0, 1, 2},
                           {0, 2, 3},
                           {0, 1, 2, 3},
                           {0, 2, 3}}) {
    PlanBuilder plan(plans.size() + 1);
    for (const uint32_t row : rows) plan.Slice(row, lengths[row]++, 1, true);
    plans.push_back(plan.plan());
  }
  return plans;
}

TEST(PipelineTest, LayersAreRepeatedOnlyInStepsWithTheSameLaunches) {
  const TestWorkerOptions options = {.model = "random", .block_size = 16, .num_blocks = 80};
  TestWorkerOptions without_repeats = options;
  without_repeats.repeats_layers = false;
  TestWorker launching(without_repeats), repeating(options);
  const std::vector<v1::StepPlan> plans = SessionOfShortAndLongContexts();
  EXPECT_EQ(RunOneByOne(&repeating, plans), RunOneByOne(&launching, plans));
  if (repeating.device() == nullptr) return;
  EXPECT_EQ(repeating.device()->num_replays(), 11)
      << "all steps but the first one of two and the first one of four tokens";
}

TEST(PipelineTest, StepsThatWereRecordedAtTheStartAreRepeatedFromTheFirstOneOn) {
  TestWorker recorded, fresh;
  const absl::Status status = RecordSteps(&recorded.backend(), recorded.limits(), absl::Hours(1), &recorded.executor());
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  const int num_before = recorded.device() == nullptr ? 0 : recorded.device()->num_replays();
  EXPECT_EQ(RunOneByOne(&recorded, plans), RunOneByOne(&fresh, plans));
  if (recorded.device() == nullptr) return;
  EXPECT_EQ(recorded.device()->num_replays() - num_before, kNumSteps - 2) << "two steps have prompts";
}

TEST(PipelineTest, ARepeatedStepNeedsOneUploadAndOneDownload) {
  TestWorker worker;
  std::vector<v1::StepPlan> decodes = {PlanBuilder(1)
                                           .Start(0, Tokens(3, 5))
                                           .Slice(0, 0, 5, true, Blocks(0, 8))
                                           .Start(1, Tokens(20, 9))
                                           .Slice(1, 0, 9, true, Blocks(8, 8))
                                           .plan()};
  for (int step = 2; step <= 6; ++step) {
    decodes.push_back(PlanBuilder(step).Slice(0, 5 + step - 2, 1, true).Slice(1, 9 + step - 2, 1, true).plan());
  }
  int num_copies = 0;
  for (const v1::StepPlan& plan : decodes) {
    if (worker.device() != nullptr) num_copies = worker.device()->num_copies();
    ASSERT_TRUE(worker.Run(plan).ok());
  }
  if (worker.device() == nullptr) return;
  EXPECT_GT(worker.device()->num_replays(), 0);
  EXPECT_EQ(worker.device()->num_copies() - num_copies, 2);
}

TEST(PipelineTest, LongContextsAreRecordedAtTheStartWhileThereIsTime) {
  const TestWorkerOptions options = {.model = "random", .block_size = 16, .num_blocks = 32, .max_sequences = 1};
  TestWorker worker(options), hurried(options);
  // The step of 512 tokens has other launches, so it is recorded in its first run. The short step is in its second.
  ASSERT_TRUE(RecordSteps(&worker.backend(), worker.limits(), absl::Hours(1), &worker.executor()).ok());
  ASSERT_TRUE(RecordSteps(&hurried.backend(), hurried.limits(), absl::ZeroDuration(), &hurried.executor()).ok());
  if (worker.device() == nullptr) return;
  EXPECT_EQ(worker.device()->num_replays(), 3);
  EXPECT_EQ(hurried.device()->num_replays(), 0);
}

// Steps of two rows each, with other kinds of draws: with a list of tokens, without one, and with penalties.
TEST(PipelineTest, DrawsAreRepeatedOnlyInStepsWithTheSameDraws) {
  PlanBuilder prompts(1);
  uint32_t lengths[6];
  for (uint32_t row = 0; row < 6; ++row) {
    lengths[row] = 5 + row;
    prompts.Start(row, Tokens(3 + 5 * row, lengths[row]), row < 2 ? Seeded(row) : row < 4 ? Greedy() : Penalised());
    prompts.Slice(row, 0, lengths[row], true, Blocks(8 * row, 8));
  }
  std::vector<v1::StepPlan> plans = {prompts.plan()};
  for (const int row : {0, 2, 4, 0, 2, 4, 2, 0, 4, 2, 2, 0}) {
    PlanBuilder plan(plans.size() + 1);
    plan.Slice(row, lengths[row]++, 1, true).Slice(row + 1, lengths[row + 1]++, 1, true);
    plans.push_back(plan.plan());
  }
  TestWorker launching({.max_sequences = 6, .repeats_layers = false}), repeating({.max_sequences = 6});
  EXPECT_EQ(RunOneByOne(&repeating, plans), RunOneByOne(&launching, plans));
  if (repeating.device() == nullptr) return;
  EXPECT_EQ(repeating.device()->num_replays(), 10) << "all but the first with outputs, and the first without";
}

TEST(PipelineTest, ListsOfSimilarLengthsShareARecording) {
  PlanBuilder prompts(1);
  uint32_t lengths[3];
  for (uint32_t row = 0; row < 3; ++row) {
    v1::RowSampling sampling = Greedy();
    sampling.set_num_logprobs_plus_one(1 + 2 + row);  // Lists of 2, 3 and 4 tokens.
    lengths[row] = 5 + row;
    prompts.Start(row, Tokens(3 + 5 * row, lengths[row]), sampling)
        .Slice(row, 0, lengths[row], true, Blocks(8 * row, 8));
  }
  std::vector<v1::StepPlan> plans = {prompts.plan()};
  for (const int row : {0, 1, 2, 0, 1, 2}) {
    plans.push_back(PlanBuilder(plans.size() + 1).Slice(row, lengths[row]++, 1, true).plan());
  }
  TestWorker launching({.repeats_layers = false}), repeating;
  EXPECT_EQ(RunOneByOne(&repeating, plans), RunOneByOne(&launching, plans));
  if (repeating.device() == nullptr) return;
  EXPECT_EQ(repeating.device()->num_recordings(), 1);
  EXPECT_EQ(repeating.device()->num_replays(), 5) << "all but the first";
}

TEST(PipelineTest, LayersThatCannotBeRecordedGiveTheBitsOfLaunchedOnes) {
  TestWorker launching({.repeats_layers = false});
  TestWorker failing({.can_record = false});
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  EXPECT_EQ(RunOneByOne(&failing, plans), RunOneByOne(&launching, plans));
  if (failing.device() == nullptr) return;
  EXPECT_EQ(failing.device()->num_replays(), 0);
}

TEST(PipelineTest, ResetForgetsPlansThatWereBegun) {
  TestWorker worker;
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  const std::vector<std::string> expected = RunOneByOne(&worker, plans);
  worker.executor().Reset();
  ASSERT_TRUE(worker.executor().Begin(plans[0]).ok());
  if (worker.executor().CanBegin(plans[1])) {
    ASSERT_TRUE(worker.executor().Begin(plans[1]).ok());
    EXPECT_FALSE(worker.executor().CanBegin(plans[2])) << "two are under way";
  }
  worker.executor().Reset();
  EXPECT_EQ(worker.executor().num_begun(), 0);
  EXPECT_EQ(RunOneByOne(&worker, plans), expected);
}

// The third plan has begun before the failure is known.
TEST(PipelineTest, InfiniteLogitsFailTheirSequenceFromTheirOwnStepOn) {
  TestWorker worker;
  const std::vector<v1::StepPlan> plans = Session(Greedy());
  std::vector<v1::StepResult> results;
  const auto finish = [&] { worker.executor().Finish(&results.emplace_back()); };
  for (int i = 0; i < 3; ++i) {
    while (!worker.executor().CanBegin(plans[i])) finish();
    if (i == 1) worker.backend().SpoilLogits();
    ASSERT_TRUE(worker.executor().Begin(plans[i]).ok());
    worker.backend().SpoilLogits(false);
  }
  while (worker.executor().num_begun() > 0) finish();
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].failures_size(), 0);
  ASSERT_EQ(results[1].failures_size(), 1);
  ASSERT_GE(results[2].failures_size(), 1);
  EXPECT_EQ(results[2].failures(0).sequence(), results[1].failures(0).sequence());
}

}  // namespace
}  // namespace quire
