// SPDX-License-Identifier: Apache-2.0

#include "worker/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_paths.h"
#include "tests/worker/generation.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::vector<std::vector<TokenId>> Golden(const char* key) {
  std::ifstream in(SourcePath("tests/golden/models/llama2/golden.json"));
  return nlohmann::json::parse(in).at(key);
}

// Returns the logits of Hugging Face for every token of every golden prompt, in rows of 96.
std::vector<float> GoldenLogits() {
  std::ifstream in(SourcePath("tests/golden/models/llama2/logits.bin"), std::ios::binary);
  std::vector<float> logits(60 * 96);
  in.read(reinterpret_cast<char*>(logits.data()), static_cast<std::streamsize>(logits.size() * sizeof(float)));
  return logits;
}

double LogSoftmax(const float* logits, int size, int token) {
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += std::exp(double{logits[i]});
  return logits[token] - std::log(sum);
}

TEST(ExecutorTest, GreedyTokensAreThoseOfHuggingFaceForABatch) {
  if (DeviceOfTests() != TestDevice::kCpu) GTEST_SKIP() << "the records are of another model, in float32";
  TestWorker worker({.num_blocks = 128});
  const auto prompts = Golden("prompts");
  const auto expected = Golden("greedy");
  PlanBuilder first(1);
  for (uint32_t row = 0; row < prompts.size(); ++row) {
    first.Start(row, prompts[row]).Slice(row, 0, prompts[row].size(), true, Blocks(row * 32, 32));
  }
  std::vector<std::vector<TokenId>> tokens(prompts.size());
  for (uint32_t step = 1; step <= expected[0].size(); ++step) {
    PlanBuilder next(step);
    for (uint32_t row = 0; step > 1 && row < prompts.size(); ++row) {
      next.Slice(row, prompts[row].size() + step - 2, 1, true);
    }
    const auto result = worker.Run(step == 1 ? first.plan() : next.plan());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->step(), step);
    for (size_t row = 0; row < prompts.size(); ++row) tokens[row].push_back(result->token_ids(row));
  }
  EXPECT_EQ(tokens, expected);
}

TEST(ExecutorTest, PromptLogprobsAreThoseOfHuggingFace) {
  if (DeviceOfTests() != TestDevice::kCpu) GTEST_SKIP() << "the records are of another model, in float32";
  TestWorker worker;
  const std::vector<TokenId> prompt = Golden("prompts")[1];
  const std::vector<float> logits = GoldenLogits();
  const size_t first_row = Golden("prompts")[0].size();
  v1::RowSampling sampling = Greedy();
  sampling.set_num_prompt_logprobs_plus_one(1);
  const Generation generation = Generate(&worker, {.prompt = prompt, .sampling = sampling, .num_tokens = 1});
  ASSERT_EQ(generation.prompt_scores.logprobs_size(), static_cast<int>(prompt.size()) - 1);
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    EXPECT_NEAR(generation.prompt_scores.logprobs(i), LogSoftmax(&logits[(first_row + i) * 96], 96, prompt[i + 1]),
                1e-4);
  }
}

TEST(ExecutorTest, ChunksBlocksRowsAndLogitRowsChangeNoBit) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(0.8f);
  sampling.set_seed(7);
  sampling.set_num_logprobs_plus_one(4);
  sampling.set_num_prompt_logprobs_plus_one(3);
  const std::vector<TokenId> prompt = Golden("prompts")[2];
  TestWorker whole;
  const Generation expected = Generate(&whole, {.prompt = prompt, .sampling = sampling});
  EXPECT_EQ(expected.tokens.size(), 8u);
  EXPECT_EQ(expected.prompt_scores.top_logprobs_size(), 2 * (static_cast<int>(prompt.size()) - 1));

  TestWorker small_blocks({.block_size = 1, .num_blocks = 128, .max_logit_rows = 3});
  TestWorker large_blocks({.block_size = 16, .max_logit_rows = 1});
  for (TestWorker* worker : {&whole, &small_blocks, &large_blocks}) {
    const Generation generation = Generate(
        worker, {.prompt = prompt, .sampling = sampling, .chunks = {1, 16, 3, 20}, .row = 3, .first_block = 9});
    EXPECT_EQ(generation.tokens, expected.tokens);
    EXPECT_EQ(generation.prompt_scores.SerializeAsString(), expected.prompt_scores.SerializeAsString());
    for (size_t i = 0; i < expected.scores.size(); ++i) {
      EXPECT_EQ(generation.scores[i].SerializeAsString(), expected.scores[i].SerializeAsString()) << i;
    }
  }
}

TEST(ExecutorTest, RowsTellTheirTablesWhenAsked) {
  TestWorker worker;
  auto result = worker.Run(PlanBuilder(1)
                               .Start(0, Tokens(3, 6))
                               .Start(2, {5, 6})
                               .Slice(0, 0, 4, false, {7, 2})
                               .Slice(2, 0, 2, true, {4})
                               .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->has_tables());
  result = worker.Run(PlanBuilder(2)
                          .Fork(1, 2)
                          .Slice(2, 2, 1, true)
                          .Slice(0, 4, 2, true, {9, 8}, 1)
                          .Slice(1, 2, 1, true, {5}, 0)
                          .WantTables()
                          .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->tables().sequences(), ElementsAre(102, 100, 101));
  EXPECT_THAT(result->tables().computed_tokens(), ElementsAre(3, 6, 3));
  EXPECT_THAT(result->tables().table_lengths(), ElementsAre(1, 3, 1));
  EXPECT_THAT(result->tables().blocks(), ElementsAre(4, 7, 9, 8, 5));
}

TEST(ExecutorTest, ScoresBelongToTheRowsThatAskForThem) {
  TestWorker worker;
  v1::RowSampling scored = Greedy();
  scored.set_num_logprobs_plus_one(3);
  const auto result = worker.Run(PlanBuilder(1)
                                     .Start(0, {5, 6})
                                     .Start(1, {5, 6}, scored)
                                     .Slice(0, 0, 2, true, {0})
                                     .Slice(1, 0, 2, true, {1})
                                     .plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->scores().top_lengths(), ElementsAre(0, 2));
  EXPECT_THAT(result->scores().ranks(), ElementsAre(0, 1));
  EXPECT_EQ(result->scores().logprobs(0), 0);
  EXPECT_EQ(result->scores().top_token_ids(0), result->token_ids(1));
  EXPECT_EQ(result->scores().top_logprobs(0), result->scores().logprobs(1));
}

TEST(ExecutorTest, AStepWithoutScoresSendsNone) {
  TestWorker worker;
  const auto result = worker.Run(PlanBuilder(1).Start(0, {5, 6}).Slice(0, 0, 2, true, {0}).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->has_scores());
  EXPECT_EQ(result->prompt_scores_size(), 0);
}

TEST(ExecutorTest, SampleDrawsWithTheSeedPlusItsIndex) {
  TestWorker worker;
  GenerationRequest request{.prompt = Tokens(3, 5), .num_tokens = 24};
  request.sampling.set_temperature(1.5f);
  request.sampling.set_seed(1);
  const std::vector<TokenId> tokens = Generate(&worker, request).tokens;
  EXPECT_EQ(Generate(&worker, request).tokens, tokens);
  request.sample_index = 3;
  const std::vector<TokenId> fourth = Generate(&worker, request).tokens;
  EXPECT_NE(fourth, tokens);
  request.sample_index = 0;
  request.sampling.set_seed(4);
  EXPECT_EQ(Generate(&worker, request).tokens, fourth);
}

TEST(ExecutorTest, ARestartedSequenceGoesOnAsIfItHadNeverStopped) {
  TestWorker worker;
  GenerationRequest request{.prompt = Tokens(3, 5), .num_tokens = 12};
  request.sampling.set_temperature(1.2f);
  request.sampling.set_seed(5);
  request.sampling.set_frequency_penalty(0.5f);
  request.sampling.set_presence_penalty(0.5f);
  request.sampling.set_repetition_penalty(1.3f);
  const std::vector<TokenId> tokens = Generate(&worker, request).tokens;

  std::vector<TokenId> known = request.prompt;
  known.insert(known.end(), tokens.begin(), tokens.begin() + 6);
  worker.executor().Reset();
  PlanBuilder restart(1);
  restart.Start(2, known, request.sampling, 5).Slice(2, 0, known.size(), true, Blocks(20, 8));
  std::vector<TokenId> rest;
  for (uint32_t step = 1; step <= 6; ++step) {
    const auto result =
        worker.Run(step == 1 ? restart.plan() : PlanBuilder(step).Slice(2, known.size() + step - 2, 1, true).plan());
    ASSERT_TRUE(result.ok()) << result.status();
    rest.push_back(result->token_ids(0));
  }
  EXPECT_EQ(rest, std::vector<TokenId>(tokens.begin() + 6, tokens.end()));
}

TEST(ExecutorTest, AForkThatCopiesThePartialBlockGivesTheTokensOfItsOwnPrefill) {
  TestWorker worker;
  const std::vector<TokenId> prompt = Tokens(10, 6);  // One full block of 4 and half of another.
  std::vector<TokenId> fork = prompt;
  fork.push_back(77);  // The parent continues with what it draws, the fork with token 77.
  const std::vector<TokenId> parent_alone = Generate(&worker, {.prompt = prompt, .num_tokens = 5}).tokens;
  const std::vector<TokenId> fork_alone = Generate(&worker, {.prompt = fork, .num_tokens = 4}).tokens;

  worker.executor().Reset();
  std::vector<TokenId> parent_tokens, fork_tokens;
  auto result = worker.Run(PlanBuilder(1).Start(0, prompt).Slice(0, 0, 6, true, {8, 3}).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  parent_tokens.push_back(result->token_ids(0));
  result = worker.Run(
      PlanBuilder(2).Start(1, fork, Greedy(), 6).Copy(3, 5).Slice(0, 6, 1, true).Slice(1, 6, 1, true, {8, 5}).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  parent_tokens.push_back(result->token_ids(0));
  fork_tokens.push_back(result->token_ids(1));
  for (uint32_t step = 3; step <= 5; ++step) {
    PlanBuilder next(step);
    // The third block begins at position 8.
    next.Slice(0, step + 4, 1, true, step == 4 ? Blocks(20, 1) : Blocks(0, 0), 2);
    next.Slice(1, step + 4, 1, true, step == 4 ? Blocks(21, 1) : Blocks(0, 0), 2);
    result = worker.Run(next.plan());
    ASSERT_TRUE(result.ok()) << result.status();
    parent_tokens.push_back(result->token_ids(0));
    fork_tokens.push_back(result->token_ids(1));
  }
  EXPECT_EQ(parent_tokens, parent_alone);
  EXPECT_EQ(fork_tokens, fork_alone);
}

TEST(ExecutorTest, CachedBlocksNeedNoSecondPrefill) {
  TestWorker worker;
  const std::vector<TokenId> prompt = Tokens(30, 10);
  const std::vector<TokenId> expected = Generate(&worker, {.prompt = prompt, .num_tokens = 1}).tokens;
  // Blocks 0 and 1 hold positions 0 .. 7 of the same prompt. They keep their contents when the session ends.
  worker.executor().Reset();
  const auto result = worker.Run(PlanBuilder(1).Start(3, prompt).Slice(3, 8, 2, true, {0, 1, 40}).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->token_ids(0), static_cast<uint32_t>(expected[0]));
}

TEST(ExecutorTest, ASequenceWithInfiniteLogitsFailsAlone) {
  TestWorker worker;
  worker.backend().SpoilLogits();
  PlanBuilder both(1);
  both.Start(2, {5, 6, 7}).Slice(2, 0, 3, true, {0}).Start(1, {5, 6, 8}).Slice(1, 0, 3, true, {1});
  const auto result = worker.Run(both.plan());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->failures_size(), 1);
  EXPECT_EQ(result->failures(0).slice(), 0u);
  EXPECT_EQ(result->failures(0).sequence(), 102u);
  EXPECT_EQ(result->failures(0).reason(), v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE);
  EXPECT_EQ(result->failures(0).message(), "the logits after position 2 are not finite");
  TestWorker alone;
  const auto expected = alone.Run(PlanBuilder(1).Start(1, {5, 6, 8}).Slice(1, 0, 3, true, {1}).plan());
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_THAT(result->token_ids(), ElementsAreArray(expected->token_ids()));
}

TEST(ExecutorTest, ARowWithInfiniteLogitsStaysFailedUntilAnotherSequenceTakesIt) {
  TestWorker worker;
  worker.backend().SpoilLogits();
  ASSERT_TRUE(worker.Run(PlanBuilder(1).Start(2, {5, 6, 7}).Slice(2, 0, 3, true, {0}).plan()).ok());
  worker.backend().SpoilLogits(false);
  // The manager has made this plan before it knew of the failure.
  const auto next = worker.Run(PlanBuilder(2).Fork(3, 2, 1).Slice(2, 3, 1, true).Slice(3, 3, 1, true, {1}).plan());
  ASSERT_TRUE(next.ok()) << next.status();
  ASSERT_EQ(next->failures_size(), 2);
  EXPECT_EQ(next->failures(0).sequence(), 102u);
  EXPECT_EQ(next->failures(1).slice(), 1u) << "the fork has failed as well";
  EXPECT_TRUE(next->token_ids().empty());
  const auto other = worker.Run(PlanBuilder(3).Start(2, {5, 6, 7}).Slice(2, 0, 3, true, {4}).plan());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->failures_size(), 0);
  EXPECT_EQ(other->token_ids_size(), 1);
}

TEST(ExecutorTest, InfiniteLogitsOfAPromptFailTheSequence) {
  TestWorker worker;
  worker.backend().SpoilLogits();
  v1::RowSampling sampling = Greedy();
  sampling.set_num_prompt_logprobs_plus_one(1);
  const auto result = worker.Run(PlanBuilder(1).Start(2, {5, 6, 7}, sampling).Slice(2, 0, 2, false, {0}).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->failures_size(), 1);
  EXPECT_EQ(result->failures(0).message(), "the logits after position 0 are not finite");
  EXPECT_EQ(result->prompt_scores_size(), 0);
}

TEST(ExecutorTest, ResetForgetsRowsAndStartsAtStepOne) {
  TestWorker worker;
  ASSERT_TRUE(worker.Run(PlanBuilder(1).Start(0, {5, 6}).Slice(0, 0, 2, true, {0}).plan()).ok());
  worker.executor().Reset();
  const auto result = worker.Run(PlanBuilder(1).Slice(0, 2, 1, true, {0}).plan());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ExecutorTest, AnEmptyPlanIsAStep) {
  TestWorker worker;
  const auto result = worker.Run(PlanBuilder(1).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->step(), 1u);
}

}  // namespace
}  // namespace quire
