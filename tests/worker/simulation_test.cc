// SPDX-License-Identifier: Apache-2.0

// Tests what the simulated device promises: the tokens equal the reference's, and every fault in block tables, copies,
// swaps or plans gives other tokens.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/simulated/backend.h"
#include "kernels/simulated/expected_tokens.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/simulated_model.h"

namespace quire {
namespace {

using simulated::ExpectedTokens;
using simulated::SimulatedBackend;
using simulated::StepTimes;
using simulated::TokenRule;
using ::testing::HasSubstr;

template <typename T>
T ValueOrDie(absl::StatusOr<T> value) {
  QUIRE_CHECK(value.ok()) << value.status();
  return *std::move(value);
}

// Draws from all tokens.
SamplingRow SeededRow(uint64_t seed) {
  SamplingRow row{};
  row.temperature = 1;
  row.top_p = 1;
  row.repetition_penalty = 1;
  row.seed = seed;
  row.num_top = -1;
  row.given_token = -1;
  return row;
}

// A simulated device with blocks of 4 tokens. The vocabulary has 96 tokens, and token 2 is the end token.
class SimulationTest : public ::testing::Test {
 protected:
  static inline const WorkerLimits kLimits{.max_sequences = 4,
                                           .max_tokens_per_step = 64,
                                           .max_context_tokens = 256,
                                           .vocab_size = 96,
                                           .block_size = 4,
                                           .num_blocks = 64,
                                           .num_host_blocks = 8};

  void SetUp() override {
    model_ = ValueOrDie(ReadSimulatedModel(GoldenModel("llama2")));
    const KvLayout layout{
        .num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .block_size = 4, .type = SimulatedBackend::kKvType};
    ASSERT_TRUE(backend_.CheckLayout(layout, 1).ok());
    storage_ = ValueOrDie(
        BlockStorage::Create(&backend_, layout, kLimits.num_blocks, kLimits.num_host_blocks, /*prefault=*/false));
    executor_ = ValueOrDie(Executor::Create(&backend_, model_.get(), storage_.get(), kLimits, LogitRowsFor(kLimits)));
  }

  // Runs the plan and returns the tokens of its slices.
  std::vector<TokenId> Run(const PlanBuilder& builder) {
    v1::StepResult result;
    const absl::Status status = executor_->Run(builder.plan(), &result);
    QUIRE_CHECK(status.ok()) << status;
    return {result.token_ids().begin(), result.token_ids().end()};
  }

  // Runs a prompt of 10 tokens in blocks 0, 1 and 2, and returns the first two expected tokens.
  std::vector<TokenId> RunPrompt() {
    const std::vector<TokenId> expected = ExpectedTokens(rule_, Tokens(10, 10), 2);
    EXPECT_EQ(Run(PlanBuilder(1).Start(0, Tokens(10, 10)).Slice(0, 0, 10, true, {0, 1, 2})),
              std::vector<TokenId>{expected[0]});
    return expected;
  }
  // Decodes one token with these blocks.
  TokenId Decode(uint64_t step, const std::vector<uint32_t>& table) {
    return Run(PlanBuilder(step).Slice(0, 10, 1, true, table))[0];
  }

  TokenRule rule_{96, {2}};
  SimulatedBackend backend_{rule_, StepTimes()};
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(SimulationTest, TokensAreThoseOfTheReferenceInAnyChunksAndBlocks) {
  const std::vector<TokenId> prompt = Tokens(30, 11);
  const std::vector<TokenId> expected = ExpectedTokens(rule_, prompt, 20);
  std::vector<TokenId> tokens;
  Run(PlanBuilder(1).Start(1, prompt).Slice(1, 0, 3, false, {9}));
  Run(PlanBuilder(2).Slice(1, 3, 4, false, {9, 4}));
  tokens.push_back(Run(PlanBuilder(3).Slice(1, 7, 4, true, {9, 4, 33}))[0]);
  for (uint32_t position = 11; position < 30; ++position) {
    const std::vector<uint32_t> table = {9, 4, 33, 7, 8, 6, 5, 40};
    tokens.push_back(Run(PlanBuilder(position - 7).Slice(1, position, 1, true, table))[0]);
  }
  EXPECT_EQ(tokens, expected);
}

TEST_F(SimulationTest, AnEmbeddingIsAHashOfTheWholePrompt) {
  v1::RowSampling sampling = Greedy();
  sampling.set_pooling(v1::POOLING_KIND_LAST_TOKEN);
  Run(PlanBuilder(1).Start(1, Tokens(30, 11), sampling).Slice(1, 0, 7, false, {9, 4}));
  v1::StepResult result;
  ASSERT_TRUE(executor_->Run(PlanBuilder(2).Slice(1, 7, 4, true, {9, 4, 33}).plan(), &result).ok());
  const std::array<float, 2> expected = simulated::EmbeddingOf(simulated::SumOf(Tokens(30, 11)));
  EXPECT_THAT(result.embeddings(), ::testing::ElementsAreArray(expected));
}

TEST_F(SimulationTest, SeededTokensAreThoseOfTheReference) {
  SamplingRow row = SeededRow(7);
  row.temperature = 0.8f;
  row.top_p = 0.9f;
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(0.8f);
  sampling.set_top_p(0.9f);
  sampling.set_seed(7);
  const std::vector<TokenId> expected = ExpectedTokens(rule_, Tokens(10, 10), row, 12);
  EXPECT_NE(expected, ExpectedTokens(rule_, Tokens(10, 10), 12)) << "these are the greedy ones";
  std::vector<TokenId> tokens =
      Run(PlanBuilder(1).Start(0, Tokens(10, 10), sampling).Slice(0, 0, 10, true, {0, 1, 2, 3, 4, 5}));
  for (uint32_t position = 10; position < 21; ++position) {
    tokens.push_back(Run(PlanBuilder(position - 8).Slice(0, position, 1, true))[0]);
  }
  EXPECT_EQ(tokens, expected);
}

TEST_F(SimulationTest, EveryWrongEntryOfTheTableChangesTheToken) {
  const auto decode = [&](const std::vector<uint32_t>& table) {
    executor_->Reset();
    RunPrompt();
    return Decode(2, table);
  };
  const TokenId expected = decode({0, 1, 2});
  EXPECT_EQ(expected, ExpectedTokens(rule_, Tokens(10, 10), 2)[1]);
  EXPECT_NE(decode({5, 1, 2}), expected);
  EXPECT_NE(decode({0, 5, 2}), expected);
  EXPECT_NE(decode({0, 1, 5}), expected);
  EXPECT_NE(decode({1, 0, 2}), expected);
}

TEST_F(SimulationTest, ABlockThatAnotherSequenceHasTakenChangesTheToken) {
  const TokenId expected = RunPrompt()[1];
  Run(PlanBuilder(2).Start(1, Tokens(50, 4)).Slice(1, 0, 4, true, {1}));
  EXPECT_NE(Decode(3, {0, 1, 2}), expected);
}

TEST_F(SimulationTest, ACachedBlockOfAnotherPrefixChangesTheToken) {
  RunPrompt();
  Run(PlanBuilder(2).Start(1, Tokens(50, 10)).Slice(1, 0, 10, true, {10, 11, 12}));
  // Only the tokens of the last block are computed. The first one belongs to the right prefix, or to the other one.
  const auto adopt = [&](uint64_t step, uint32_t block) {
    return Run(PlanBuilder(step).Start(2, Tokens(10, 10)).Slice(2, 4, 6, true, {block, 20, 21}))[0];
  };
  const TokenId expected = ExpectedTokens(rule_, Tokens(10, 10), 1)[0];
  EXPECT_EQ(adopt(3, 0), expected);
  EXPECT_NE(adopt(4, 10), expected);
}

// Rows 0 and 1 share blocks 0, 1 and 2 after the prompt. Row 1 draws another first token than row 0.
TEST_F(SimulationTest, AMissingCopyChangesTheTokenOfTheSequenceThatSharedTheBlock) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(1);
  sampling.set_seed(3);
  const std::vector<TokenId> expected[] = {ExpectedTokens(rule_, Tokens(10, 10), SeededRow(3), 3),
                                           ExpectedTokens(rule_, Tokens(10, 10), SeededRow(4), 3)};
  ASSERT_NE(expected[0][0], expected[1][0]);
  const auto fork = [&] {
    executor_->Reset();
    const auto drawn = Run(PlanBuilder(1)
                               .Start(0, Tokens(10, 10), sampling)
                               .Fork(1, 0, 1)
                               .Slice(0, 0, 10, true, {0, 1, 2})
                               .Slice(1, 10, 0, true, {0, 1, 2}));
    EXPECT_EQ(drawn, (std::vector<TokenId>{expected[0][0], expected[1][0]}));
  };
  for (const bool copies : {false, true}) {
    fork();
    PlanBuilder next(2);
    if (copies) next.Copy(2, 20);
    const auto drawn = Run(next.Slice(0, 10, 1, true).Slice(1, 10, 1, true, {20}, 2));
    EXPECT_EQ(drawn[0], expected[0][1]);
    EXPECT_EQ(drawn[1] == expected[1][1], copies);
  }
  // Both write to the shared block, one after the other. The first one then reads the token of the other.
  fork();
  EXPECT_EQ(Run(PlanBuilder(2).Slice(1, 10, 1, true))[0], expected[1][1]);
  EXPECT_EQ(Run(PlanBuilder(3).Slice(0, 10, 1, true))[0], expected[0][1]);
  EXPECT_NE(Run(PlanBuilder(4).Slice(1, 11, 1, true))[0], expected[1][2]);
}

TEST_F(SimulationTest, ACopyThatComesAfterTheSourceWasReusedChangesTheToken) {
  for (const bool is_in_order : {true, false}) {
    executor_->Reset();
    const TokenId expected = RunPrompt()[1];
    // One plan copies block 2. The other plan gives the block to another sequence.
    const auto copy = [](uint64_t step) { return PlanBuilder(step).Copy(2, 20); };
    const auto reuse = [](uint64_t step) {
      return PlanBuilder(step).Start(1, Tokens(50, 4)).Slice(1, 0, 4, true, {2});
    };
    Run(is_in_order ? copy(2) : reuse(2));
    Run(is_in_order ? reuse(3) : copy(3));
    const TokenId token = Decode(4, {0, 1, 20});
    EXPECT_EQ(token == expected, is_in_order);
  }
}

TEST_F(SimulationTest, AMissingSwapChangesTheToken) {
  uint32_t block = 40;  // Another one each time, because blocks keep their contents.
  for (const bool swaps_out : {true, false}) {
    for (const bool swaps_in : {true, false}) {
      executor_->Reset();
      ++block;
      // The host block holds something else before.
      Run(PlanBuilder(1).Start(1, Tokens(60, 4)).Slice(1, 0, 4, true, {30}));
      Run(PlanBuilder(2).SwapOut(30, 5));
      const std::vector<TokenId> expected = ExpectedTokens(rule_, Tokens(10, 10), 2);
      Run(PlanBuilder(3).Start(0, Tokens(10, 10)).Slice(0, 0, 10, true, {0, 1, 2}));
      // Another sequence takes block 1 in the step that swaps it out.
      PlanBuilder out(4);
      if (swaps_out) out.SwapOut(1, 5);
      Run(out.Start(1, Tokens(50, 4)).Slice(1, 0, 4, true, {1}));
      PlanBuilder in(5);
      if (swaps_in) in.SwapIn(5, block);
      const TokenId token = Run(in.Slice(0, 10, 1, true, {0, block, 2}))[0];
      EXPECT_EQ(token == expected[1], swaps_out && swaps_in);
    }
  }
}

TEST_F(SimulationTest, LostDoubledAndExchangedTokensChangeWhatFollows) {
  const TokenId expected = ExpectedTokens(rule_, {5, 6, 7, 8, 9}, 1)[0];
  for (const std::vector<TokenId>& prompt :
       {std::vector<TokenId>{5, 6, 8, 9}, {5, 6, 7, 7, 8, 9}, {5, 7, 6, 8, 9}, {6, 5, 7, 8, 9}, {5, 6, 7, 8, 10}}) {
    executor_->Reset();
    const auto count = static_cast<uint32_t>(prompt.size());
    EXPECT_NE(Run(PlanBuilder(1).Start(0, prompt).Slice(0, 0, count, true, {0, 1}))[0], expected);
  }
}

TEST_F(SimulationTest, ForksShareTheLogitsOfTheirParent) {
  v1::RowSampling sampling = Greedy();
  sampling.set_temperature(1);
  sampling.set_seed(3);
  const auto tokens = Run(PlanBuilder(1)
                              .Start(0, Tokens(10, 6), sampling)
                              .Fork(1, 0, 1)
                              .Slice(1, 6, 0, true, {0, 1})
                              .Slice(0, 0, 6, true, {0, 1}));
  EXPECT_EQ(tokens[0], ExpectedTokens(rule_, Tokens(10, 6), SeededRow(4), 1)[0]);
  EXPECT_EQ(tokens[1], ExpectedTokens(rule_, Tokens(10, 6), SeededRow(3), 1)[0]);
}

TEST_F(SimulationTest, LogprobsAreThoseOfTheLogits) {
  v1::RowSampling sampling = Greedy();
  sampling.set_num_logprobs_plus_one(21);
  sampling.set_num_prompt_logprobs_plus_one(1);
  v1::StepResult result;
  const auto plan = PlanBuilder(1).Start(0, Tokens(10, 6), sampling).Slice(0, 0, 6, true, {0, 1}).plan();
  ASSERT_TRUE(executor_->Run(plan, &result).ok());
  const v1::ScoreColumns& scores = result.scores();
  EXPECT_EQ(result.token_ids(0), static_cast<uint32_t>(ExpectedTokens(rule_, Tokens(10, 6), 1)[0]));
  EXPECT_EQ(scores.ranks(0), 1u);
  ASSERT_EQ(scores.top_token_ids_size(), 20);
  EXPECT_EQ(scores.top_token_ids(0), result.token_ids(0));
  double sum = 0;
  for (int i = 0; i < 20; ++i) sum += std::exp(double{scores.top_logprobs(i)});
  EXPECT_NEAR(sum, 1, 1e-6) << "the 16 candidates have nearly all of the probability";
  EXPECT_LT(scores.logprobs(0), -0.5) << "the best token is not certain";
  ASSERT_EQ(result.prompt_scores_size(), 1);
  EXPECT_EQ(result.prompt_scores(0).scores().logprobs_size(), 5);
}

// --- The rule ---

TEST(TokenRuleTest, TheBestTokenHasTheLargestLogitAndCandidatesAreDifferent) {
  for (const int vocab_size : {32, 33, 96, 2048}) {
    const TokenRule rule(vocab_size, {0, 7});
    std::vector<float> logits(static_cast<size_t>(vocab_size));
    std::set<int32_t> seen;
    for (uint64_t sum = 0; sum < 2000; ++sum) {
      rule.FillLogits(sum, logits.data());
      const auto best = std::max_element(logits.begin(), logits.end());
      ASSERT_EQ(best - logits.begin(), rule.BestToken(sum));
      ASSERT_EQ(std::count(logits.begin(), logits.end(), *best), 1);
      const auto num_candidates = std::count_if(logits.begin(), logits.end(), [](float x) { return x > 15; });
      ASSERT_THAT(num_candidates, ::testing::AllOf(::testing::Ge(TokenRule::kNumCandidates - 2),
                                                   ::testing::Le(TokenRule::kNumCandidates)));
      ASSERT_LT(logits[0], -20);
      ASSERT_LT(logits[7], -20);
      seen.insert(rule.BestToken(sum));
    }
    EXPECT_GT(seen.size(), static_cast<size_t>(vocab_size) / 2);
  }
}

TEST(TokenRuleTest, OutputsHaveTheirMeanLength) {
  const TokenRule rule(96, {2, 5}, /*mean_output_tokens=*/50);
  constexpr int kOutputs = 2000;
  int64_t num_tokens = 0;
  std::vector<float> logits(96);
  for (int i = 0; i < kOutputs; ++i) {
    const std::vector<int32_t> tokens = ExpectedTokens(rule, {i % 90, i / 90}, 100'000);
    ASSERT_TRUE(rule.IsEndToken(tokens.back()));
    num_tokens += static_cast<int64_t>(tokens.size());
  }
  EXPECT_NEAR(static_cast<double>(num_tokens) / kOutputs, 50, 4);
  for (uint64_t sum = 0; sum < 1000; ++sum) {
    rule.FillLogits(sum, logits.data());
    ASSERT_EQ(std::max_element(logits.begin(), logits.end()) - logits.begin(), rule.BestToken(sum));
  }
}

TEST(TokenRuleTest, AModelWithTooFewTokensIsRefused) {
  const auto config = std::make_unique<ModelConfig>();
  config->vocab_size = 31;
  EXPECT_THAT(std::string(TokenRuleOf(*config, 0).status().message()), HasSubstr("vocab_size is 31, "));
  config->vocab_size = 32;
  config->eos_token_ids = Tokens(0, 17);
  EXPECT_THAT(std::string(TokenRuleOf(*config, 0).status().message()), HasSubstr("the model has 17 end tokens"));
  config->eos_token_ids = Tokens(0, 16);
  EXPECT_TRUE(TokenRuleOf(*config, 0).ok());
}

TEST(SimulatedModelTest, NeedsNoWeightsAndTheFingerprintIsThatOfTheConfiguration) {
  const TestDirectory directory;
  directory.CopyFrom(GoldenModel("llama2"), "config.json");
  const auto model = ReadSimulatedModel(directory.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config.vocab_size, 96);
  const auto other = ReadSimulatedModel(GoldenModel("qwen2"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*model)->weights.fingerprint, (*other)->weights.fingerprint);
}

// --- Time ---

TEST(StepTimesTest, AStepIsTheSumOfItsParts) {
  using std::chrono::nanoseconds;
  const StepTimes times{.step = nanoseconds(1'000'000),
                        .prefill_token = nanoseconds(10'000),
                        .decode_row = nanoseconds(100),
                        .context_token = nanoseconds(1)};
  // Two rows that decode, and a chunk of three tokens. The contexts have 7, 3 and 9 tokens.
  const int32_t query_starts[] = {0, 1, 4, 5};
  const int32_t context_lens[] = {7, 3, 9};
  BatchView batch{};
  batch.num_tokens = 5;
  batch.num_sequences = 3;
  batch.query_starts = query_starts;
  batch.context_lens = context_lens;
  EXPECT_EQ(times.Of(batch), nanoseconds(1'000'000 + 30'000 + 200 + 19));
  EXPECT_EQ(StepTimes().Of(batch), nanoseconds(0));
}

// Prepares a step and returns how long the wait for its end takes.
std::chrono::nanoseconds TimeOfStep(SimulatedBackend* backend) {
  const int32_t query_starts[] = {0, 1};
  const int32_t context_lens[] = {1};
  BatchView batch{};
  batch.num_tokens = 1;
  batch.num_sequences = 1;
  batch.query_starts = query_starts;
  batch.context_lens = context_lens;
  const auto begin = std::chrono::steady_clock::now();
  backend->PrepareBatch(&batch, 1, 1);
  backend->Wait(backend->Mark());
  return std::chrono::steady_clock::now() - begin;
}

TEST(StepTimesTest, AStepDoesNotEndBeforeItsTime) {
  using std::chrono::milliseconds;
  SimulatedBackend backend(TokenRule(32, {}), {.step = milliseconds(30)});
  EXPECT_GE(TimeOfStep(&backend), milliseconds(30));
}

TEST(StepTimesTest, AnInterruptEndsTheWaitForAStepNowAndLater) {
  // A step that does not end outlives this test, so it shares the backend.
  const auto backend = std::make_shared<SimulatedBackend>(TokenRule(32, {}), StepTimes{.step = std::chrono::hours(24)});
  const auto begin_step = [&backend] {
    std::packaged_task<void()> step([backend] { TimeOfStep(backend.get()); });
    std::future<void> end = step.get_future();
    std::thread(std::move(step)).detach();
    return end;
  };
  const std::future<void> now = begin_step();
  backend->Interrupt();
  ASSERT_EQ(now.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  const std::future<void> later = begin_step();
  EXPECT_EQ(later.wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

}  // namespace
}  // namespace quire
