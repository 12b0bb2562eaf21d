// SPDX-License-Identifier: Apache-2.0

#include "gtest/gtest.h"
#include "scheduler/beam_search_state.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

class SchedulerRestoreTest : public SchedulerTest {
 protected:
  static SchedulerOptions KeepingOptions() {
    SchedulerOptions options = Options();
    options.keeps_rows = true;
    return options;
  }

  static Request Recorded(Request request) {
    request.record = std::make_shared<const std::string>("record");
    return request;
  }
};

// Each of the samples has blocks of its own for the prompt, and the pool has no block for their next tokens.
TEST_F(SchedulerRestoreTest, SamplesThatDoNotShareTheirPromptAnyMoreShareItAgain) {
  Make(/*num_blocks=*/6, KeepingOptions());
  Request request = Recorded(MakeRequest(1, /*prompt_length=*/8, /*max_tokens=*/8));
  request.num_samples = 2;
  const SoloOutput solo = SoloRun(model_, request);
  requests_[request.id] = request;
  RestoredBlocks blocks;
  RestoredRequest restored;
  restored.request = request;
  for (uint32_t i = 0; i < 2; ++i) {
    std::vector<TokenId> tokens = request.prompt;
    tokens.push_back(solo.samples[i].tokens[0]);
    const SequenceId sequence{i + 1};
    blocks.tables.push_back({.sequence = sequence,
                             .blocks = {BlockId{2 * i}, BlockId{2 * i + 1}},
                             .num_stored = 8,
                             .tokens = tokens,
                             .salt = std::string()});
    restored.samples.push_back({.sequence = sequence,
                                .sample_index = static_cast<int>(i),
                                .row = RowId{i},
                                .tokens = tokens,
                                .num_stored = 8,
                                .num_computed = 8});
  }
  blocks_->Restore(blocks);
  std::vector<RestoredRequest> all;
  all.push_back(std::move(restored));
  EXPECT_EQ(scheduler_->Restore(std::move(all)).size(), 0u);
  ASSERT_EQ(scheduler_->counts().waiting, 1) << "with 6 blocks it could never get to its end";
  emitted_[request.id] = {solo.samples[0].tokens[0]};
  RunToTheEnd();
  EXPECT_EQ(Emitted(1), solo.samples[0].tokens);
}

// The worker gets with the row what the next manager cannot compute from tokens.
TEST_F(SchedulerRestoreTest, ARequestThatWasPreemptedStartsWithTheScoresOfItsTokens) {
  Make(/*num_blocks=*/20, KeepingOptions());
  Request request = Recorded(MakeRequest(1, 6, 8));
  request.sampling.num_logprobs = 0;
  request.sampling.num_prompt_logprobs = 0;
  const SoloOutput solo = SoloRun(model_, request);
  Submit(request);
  for (int i = 0; i < 3; ++i) Step();
  scheduler_->AbandonAll();
  NewWorker();
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].scores,
            (std::vector<ScoredToken>(solo.samples[0].scores.begin(), solo.samples[0].scores.begin() + 3)));
  EXPECT_EQ(plan.starts[0].prompt_scores, solo.prompt_logprobs);
  Commit();
  RunToTheEnd();
}

TEST_F(SchedulerRestoreTest, ARequestThatHasMovedBeforeItsStartKeepsTheScoresOfItsTokens) {
  Make(/*num_blocks=*/20, KeepingOptions());
  Request request = Recorded(MakeRequest(1, 6, 8));
  request.sampling.num_logprobs = 0;
  requests_[request.id] = request;
  ASSERT_EQ(scheduler_->Adopt(MovedRequest(request)), absl::OkStatus());
  for (int i = 0; i < 3; ++i) Step();
  scheduler_->AbandonAll();
  NewWorker();
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].scores.size(), 3u);
  Commit();
  RunToTheEnd();
}

TEST_F(SchedulerRestoreTest, TheRowOfTheBestBeamHasWhatTheSearchHasBecome) {
  Make(/*num_blocks=*/40, KeepingOptions());
  Request request = Recorded(MakeRequest(1, 6, 8));
  request.beam = BeamParams{.width = 3, .num_return = 2};
  request.sampling.num_prompt_logprobs = 0;
  Submit(request);
  Step();
  for (int num_generated = 1; num_generated < 4; ++num_generated) {
    const StepPlan plan = Plan();
    ASSERT_EQ(plan.records.size(), 1u);
    const SequenceGroup& group = *scheduler_->FindGroup(request.id);
    EXPECT_EQ(plan.records[0].row, group.sequences().front()->row());
    EXPECT_EQ(plan.records[0].record, request.record);
    const auto state = DecodeBeamSearchState(plan.records[0].search, request, model_.vocab_size);
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(state->num_generated, num_generated);
    EXPECT_EQ(state->sequences, group.SequenceIds());
    Commit();
  }
  scheduler_->AbandonAll();
  NewWorker();
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.starts.size(), 3u);
  EXPECT_EQ(NumGeneratedOf(plan.starts[0].search), 4);
  EXPECT_EQ(plan.starts[1].search, "");
  for (const SequenceStart& start : plan.starts) {
    EXPECT_EQ(start.prompt_scores, SoloRun(model_, request).prompt_logprobs)
        << "each beam may be the one that continues";
  }
  Commit();
  RunToTheEnd();
}

// The worker tells the next manager from which positions on the tokens have other numerics.
TEST_F(SchedulerRestoreTest, ARequestThatHasGotOtherNumericsTellsItsNewRows) {
  for (const bool is_search : {false, true}) {
    Make(/*num_blocks=*/40, KeepingOptions());
    Request request = Recorded(MakeRequest(is_search ? 2 : 1, 6, 8));
    if (is_search) {
      request.beam = BeamParams{.width = 2, .num_return = 1};
    } else {
      request.num_samples = 2;
    }
    Submit(request);
    EXPECT_EQ(Plan().starts.at(0).numerics_change, std::nullopt);
    Commit();
    int num_tokens = 0;
    for (const uint64_t generation : {1, 2}) {
      Step();
      scheduler_->AbandonAll();
      std::vector<MovedRequest> moved = scheduler_->TakeAll();
      moved.at(0).SetGeneration(GenerationId{generation});
      EXPECT_EQ(scheduler_->Adopt(std::move(moved[0])), absl::OkStatus());
      NewWorker();
      const StepPlan plan = Plan();
      ASSERT_EQ(plan.starts.size(), 2u);
      for (const SequenceStart& start : plan.starts) {
        EXPECT_GT(static_cast<int>(start.tokens.size()), num_tokens);
        EXPECT_EQ(start.numerics_change, (NumericsChange{.first = 8, .last = static_cast<int>(start.tokens.size())}));
      }
      num_tokens = static_cast<int>(plan.starts[0].tokens.size());
      Commit();
    }
    if (!is_search) continue;
    StepPlan plan = Plan();
    for (int i = 0; i < 3 && plan.records.empty(); ++i) {
      Commit();
      plan = Plan();
    }
    ASSERT_EQ(plan.records.size(), 1u);
    EXPECT_EQ(plan.records[0].numerics_change, (NumericsChange{.first = 8, .last = num_tokens}));
    Commit();
  }
}

// Otherwise the next manager would find a part of the request and compute all of it again, for nobody.
TEST_F(SchedulerRestoreTest, TheRowsOfAFinishedRequestEndWhenOneOfThemIsTaken) {
  Make(/*num_blocks=*/40, KeepingOptions());
  Request first = Recorded(MakeRequest(1, 6, 3));
  first.num_samples = 3;
  Submit(first);
  RunToTheEnd();
  const RowId lowest{0};
  const RowId next{1};
  const RowId last{2};
  Submit(Recorded(MakeRequest(2, 6, 1)));
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.starts.size(), 1u);
  EXPECT_EQ(plan.starts[0].row, lowest);
  EXPECT_EQ(plan.end_rows, (std::vector<RowId>{next, last}));
  Commit();
  RunToTheEnd();
  Request forked = Recorded(MakeRequest(3, 6, 2));
  forked.num_samples = 2;
  Submit(forked);
  EXPECT_EQ(Plan().end_rows, std::vector<RowId>()) << "the row that was taken was the only one";
  Commit();
  RunToTheEnd();
}

// A fork takes the row of a request of an earlier session that had finished.
TEST_F(SchedulerRestoreTest, ForksEndTheRowsOfAFinishedRequestInTheSamePlan) {
  SchedulerOptions options = KeepingOptions();
  options.max_sequences = 3;
  Make(/*num_blocks=*/40, options);
  scheduler_->KeepRows(RequestId{7}, {RowId{1}, RowId{2}});
  Request forked = Recorded(MakeRequest(1, 6, 2));
  forked.num_samples = 2;
  Submit(forked);
  const StepPlan plan = Plan();
  ASSERT_EQ(plan.forks.size(), 1u);
  EXPECT_EQ(plan.forks[0].row, RowId{1});
  EXPECT_EQ(plan.end_rows, std::vector<RowId>{RowId{2}});
  Commit();
  RunToTheEnd();
}

}  // namespace
}  // namespace quire
