// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "tests/worker/generation.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

v1::StepResult RunOrDie(TestWorker* worker, const PlanBuilder& builder) {
  absl::StatusOr<v1::StepResult> result = worker->Run(builder.plan());
  QUIRE_CHECK(result.ok()) << result.status();
  return *std::move(result);
}

// Sets every parameter that a fork must copy. Each of them changes some of the tokens below.
v1::RowSampling RichSampling() {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(1.1f);
  sampling.set_top_k(40);
  sampling.set_seed(11);
  sampling.set_frequency_penalty(0.4f);
  sampling.set_repetition_penalty(1.2f);
  sampling.add_bias_token_ids(30);
  sampling.add_biases(2);
  sampling.add_bad_word_token_ids(30);
  sampling.add_bad_word_token_ids(31);
  sampling.add_bad_word_lengths(2);
  sampling.set_num_logprobs_plus_one(4);
  return sampling;
}

// --- Samples of one prompt ---

// A drawn token and everything that is reported about it.
struct Draw {
  uint32_t token;
  float logprob;
  uint32_t rank;
  std::vector<uint32_t> top;
  std::vector<float> top_logprobs;

  bool operator==(const Draw&) const = default;
};

// Returns draw `index` of a step in which every row asks for 3 alternatives.
Draw DrawOf(uint32_t token, const v1::ScoreColumns& scores, int index) {
  Draw draw{token, scores.logprobs(index), scores.ranks(index), {}, {}};
  for (int i = 3 * index; i < 3 * index + 3; ++i) {
    draw.top.push_back(scores.top_token_ids(i));
    draw.top_logprobs.push_back(scores.top_logprobs(i));
  }
  return draw;
}

constexpr int kNumSamples = 4;
constexpr int kNumTokens = 8;

// Runs four samples of a prompt of 6 tokens. Each is alone in a session, in its own row.
std::vector<std::vector<Draw>> SeparateSamples(TestWorker* worker) {
  std::vector<std::vector<Draw>> samples(kNumSamples);
  for (int sample = 0; sample < kNumSamples; ++sample) {
    const Generation alone = Generate(worker, {.prompt = Tokens(10, 6),
                                               .sampling = RichSampling(),
                                               .num_tokens = kNumTokens,
                                               .sample_index = static_cast<uint32_t>(sample)});
    for (int i = 0; i < kNumTokens; ++i) samples[sample].push_back(DrawOf(alone.tokens[i], alone.scores[i], 0));
  }
  return samples;
}

// Runs the same samples as forks. Row 0 computes the prompt in blocks 0 and 1, in two chunks if `chunked` is true, and
// rows 1 to 3 fork at its end. The slices are in the given order of rows.
std::vector<std::vector<Draw>> ForkedSamples(TestWorker* worker, bool chunked, const std::vector<uint32_t>& order) {
  worker->executor().Reset();
  uint64_t step = 0;
  const uint32_t first = chunked ? 4 : 0;
  if (chunked) {
    PlanBuilder chunk(++step);
    RunOrDie(worker, chunk.Start(0, Tokens(10, 6), RichSampling()).Slice(0, 0, 4, false, {0}));
  }
  std::vector<std::vector<Draw>> samples(kNumSamples);
  const auto collect = [&](const v1::StepResult& result) {
    for (int i = 0; i < kNumSamples; ++i) {
      samples[order[i]].push_back(DrawOf(result.token_ids(i), result.scores(), i));
    }
  };

  PlanBuilder fork(++step);
  if (!chunked) fork.Start(0, Tokens(10, 6), RichSampling());
  for (uint32_t row : {1, 2, 3}) fork.Fork(row, 0, row);
  for (uint32_t row : order) {
    // A fork starts with the block table from before the step, which has block 0 or nothing.
    const std::vector<uint32_t> tail = chunked ? Blocks(1, 1) : Blocks(0, 2);
    row == 0 ? fork.Slice(0, first, 6 - first, true, tail, first / 4) : fork.Slice(row, 6, 0, true, tail, first / 4);
  }
  collect(RunOrDie(worker, fork));

  for (uint32_t position = 6; position < 6 + kNumTokens - 1; ++position) {
    PlanBuilder next(++step);
    for (uint32_t row : order) {
      // All rows except row 0 copy the shared last block. New blocks begin at positions 8 and 12.
      const bool is_new = position % 4 == 0 || (position == 6 && row > 0);
      const uint32_t index = position / 4;
      const uint32_t block = 10 * index + row;
      if (position == 6 && row > 0) next.Copy(1, block);
      next.Slice(row, position, 1, true, is_new ? Blocks(block, 1) : Blocks(0, 0), index);
    }
    collect(RunOrDie(worker, next));
  }
  return samples;
}

TEST(ForkTest, SamplesForkedFromOnePromptHaveTheBitsOfSeparateRows) {
  for (int max_logit_rows : {1, 3, 64}) {
    TestWorker worker({.max_logit_rows = max_logit_rows});
    const auto expected = SeparateSamples(&worker);
    EXPECT_NE(expected[0], expected[1]);
    for (bool chunked : {false, true}) {
      for (const std::vector<uint32_t>& order : {std::vector<uint32_t>{0, 1, 2, 3}, {3, 1, 0, 2}}) {
        EXPECT_EQ(ForkedSamples(&worker, chunked, order), expected) << max_logit_rows << chunked << order[0];
      }
    }
  }
}

TEST(ForkTest, ARowForksInTheMiddleOfItsGeneration) {
  TestWorker worker;
  const auto expected = SeparateSamples(&worker);
  worker.executor().Reset();
  RunOrDie(&worker, PlanBuilder(1).Start(0, Tokens(10, 6), RichSampling(), -1, 2).Slice(0, 0, 6, true, {0, 1}));
  RunOrDie(&worker, PlanBuilder(2).Slice(0, 6, 1, true));
  // Row 3 becomes a fork of row 0, and then another sequence takes row 0.
  const auto result = RunOrDie(&worker, PlanBuilder(3)
                                            .Start(1, Tokens(50, 3))
                                            .Fork(3, 0, 2)
                                            .Fork(0, 1)
                                            .Slice(3, 7, 1, true)
                                            .Slice(0, 0, 3, true, {7}, 0));
  EXPECT_EQ(result.token_ids(0), expected[2][2].token);
  EXPECT_EQ(result.token_ids(1),
            static_cast<uint32_t>(Generate(&worker, {.prompt = Tokens(50, 3), .num_tokens = 1}).tokens[0]));
}

TEST(ForkTest, APromptsScoresAreSentOnceForAllItsSamples) {
  TestWorker worker;
  v1::RowSampling sampling = RichSampling();
  sampling.set_num_prompt_logprobs_plus_one(1);
  const auto result = RunOrDie(&worker, PlanBuilder(1)
                                            .Start(0, Tokens(10, 6), sampling)
                                            .Fork(1, 0, 1)
                                            .Slice(1, 6, 0, true, {0, 1})
                                            .Slice(0, 0, 6, true, {0, 1}));
  ASSERT_EQ(result.prompt_scores_size(), 1);
  EXPECT_EQ(result.prompt_scores(0).slice(), 1u);
  EXPECT_EQ(result.prompt_scores(0).scores().logprobs_size(), 5);
}

// --- Beams ---

v1::RowSampling BeamSampling(uint32_t num_candidates) {
  v1::RowSampling sampling = RichSampling();
  sampling.set_num_candidates(num_candidates);
  return sampling;
}

struct CandidateList {
  std::vector<uint32_t> tokens;
  std::vector<float> logprobs;

  bool operator==(const CandidateList&) const = default;
};

std::vector<CandidateList> CandidatesOf(const v1::StepResult& result) {
  std::vector<CandidateList> lists;
  int next = 0;
  for (uint32_t length : result.candidate_lengths()) {
    CandidateList& list = lists.emplace_back();
    for (uint32_t i = 0; i < length; ++i, ++next) {
      list.tokens.push_back(result.candidate_token_ids(next));
      list.logprobs.push_back(result.candidate_logprobs(next));
    }
  }
  return lists;
}

// Returns the result for a row that is started with all these tokens, where the first 6 are the prompt.
CandidateList FreshCandidates(const std::vector<TokenId>& tokens) {
  TestWorker worker;
  const auto result = RunOrDie(
      &worker, PlanBuilder(1).Start(2, tokens, BeamSampling(5), 6).Slice(2, 0, tokens.size(), true, Blocks(30, 8)));
  return CandidatesOf(result)[0];
}

TEST(ForkTest, BeamsHaveTheCandidatesOfRowsStartedWithTheirTokens) {
  TestWorker worker;
  std::vector<TokenId> left = Tokens(10, 6);
  auto lists =
      CandidatesOf(RunOrDie(&worker, PlanBuilder(1).Start(0, left, BeamSampling(5)).Slice(0, 0, 6, true, {0, 1})));
  ASSERT_EQ(lists.size(), 1u);
  EXPECT_EQ(lists[0], FreshCandidates(left));
  EXPECT_EQ(lists[0].tokens.size(), 5u);

  // Two beams continue with the two best candidates.
  std::vector<TokenId> right = left;
  left.push_back(lists[0].tokens[0]);
  right.push_back(lists[0].tokens[1]);
  lists = CandidatesOf(RunOrDie(&worker, PlanBuilder(2)
                                             .Fork(1, 0)
                                             .Append(0, left[6])
                                             .Append(1, right[6])
                                             .Copy(1, 11)
                                             .Slice(0, 6, 1, true)
                                             .Slice(1, 6, 1, true, {11}, 1)));
  EXPECT_THAT(lists, ElementsAre(FreshCandidates(left), FreshCandidates(right)));

  // Both next beams come from the right one, so one of them takes the row of the left one.
  left = right;
  left.push_back(lists[1].tokens[0]);
  right.push_back(lists[1].tokens[2]);
  lists = CandidatesOf(RunOrDie(&worker, PlanBuilder(3)
                                             .Fork(0, 1)
                                             .Append(1, right[7])
                                             .Append(0, left[7])
                                             .Copy(11, 12)
                                             .Slice(0, 7, 1, true, {12}, 1)
                                             .Slice(1, 7, 1, true)));
  EXPECT_THAT(lists, ElementsAre(FreshCandidates(left), FreshCandidates(right)));
}

TEST(ForkTest, TheBestCandidateIsTheGreedyTokenWithItsLogprob) {
  TestWorker worker;
  v1::RowSampling sampling = Greedy();
  sampling.set_num_logprobs_plus_one(5);
  const Generation greedy = Generate(&worker, {.prompt = Tokens(10, 6), .sampling = sampling, .num_tokens = 1});
  sampling.set_num_candidates(4);
  const auto result = Generate(&worker, {.prompt = Tokens(10, 6), .sampling = sampling, .num_tokens = 1});
  EXPECT_TRUE(result.tokens.empty());
  worker.executor().Reset();
  const auto lists =
      CandidatesOf(RunOrDie(&worker, PlanBuilder(1).Start(0, Tokens(10, 6), sampling).Slice(0, 0, 6, true, {0, 1})));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(lists[0].tokens[i], greedy.scores[0].top_token_ids(i));
    EXPECT_NEAR(lists[0].logprobs[i], greedy.scores[0].top_logprobs(i), 1e-6);
  }
}

TEST(ForkTest, MasksAndTheVocabularyLeaveFewerCandidates) {
  TestWorker worker;
  v1::RowSampling few = BeamSampling(5);
  for (uint32_t token : {9, 17, 33}) few.add_allowed_token_ids(token);
  v1::RowSampling all = BeamSampling(1024);
  const auto result = RunOrDie(&worker, PlanBuilder(1)
                                            .Start(0, Tokens(10, 6), few)
                                            .Start(1, Tokens(10, 6), all)
                                            .Start(2, Tokens(10, 6), RichSampling())
                                            .Slice(0, 0, 6, true, {0, 1})
                                            .Slice(1, 0, 6, true, {2, 3})
                                            .Slice(2, 0, 6, true, {4, 5}));
  EXPECT_THAT(result.candidate_lengths(), ElementsAre(3, 96));
  // Only the row that draws gets a token and scores.
  EXPECT_EQ(result.token_ids_size(), 1);
  EXPECT_THAT(result.scores().top_lengths(), ElementsAre(3));
}

}  // namespace
}  // namespace quire
