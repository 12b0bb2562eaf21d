// SPDX-License-Identifier: Apache-2.0

#include "worker/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/worker_protocol.h"
#include "tests/worker/inventory_reader.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using Prefix = ReadInventory::Prefix;

constexpr uint32_t kHost = 64;  // The place of the first block of the host tier.

class InventoryTest : public ::testing::Test {
 protected:
  InventoryTest() { worker_.executor().KeepLabels(); }

  // Runs a plan and returns the tokens that it has drawn.
  std::vector<TokenId> Run(const PlanBuilder& plan) {
    absl::StatusOr<v1::StepResult> result = worker_.Run(plan.plan());
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    last_steps_.Begin(plan.plan(), worker_.executor().rows());
    last_steps_.Finish(7, *result);
    return {result->token_ids().begin(), result->token_ids().end()};
  }
  ReadInventory Inventory(const InventoryLimits& limits = {}) {
    return Read(MakeInventory(worker_.executor(), last_steps_, "layout", limits));
  }
  // All tokens of the row, from the inventory.
  std::vector<TokenId> RowTokens(uint32_t row) { return TokensOf(Inventory().rows.at(row)); }
  // The first `count` tokens of the row.
  std::vector<TokenId> RowTokens(uint32_t row, int count) {
    std::vector<TokenId> tokens = RowTokens(row);
    tokens.resize(count);
    return tokens;
  }

  TestWorker worker_{{.num_host_blocks = 4}};
  LastSteps last_steps_;
};

TEST_F(InventoryTest, AWorkerThatHasRunNothingHasNothingToAdopt) {
  EXPECT_FALSE(HasInventory(worker_.executor()));
  Run(PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, {0, 1}));
  EXPECT_TRUE(HasInventory(worker_.executor()));
  worker_.executor().Reset();
  EXPECT_FALSE(HasInventory(worker_.executor()));
  EXPECT_EQ(Inventory().labels.size(), 0u);
}

TEST_F(InventoryTest, ARowIsThereWithEverythingThatAManagerNeeds) {
  const TokenId drawn = Run(PlanBuilder(1)
                                .Start(2, Tokens(10, 6), Greedy(), 5, 3)
                                .WithRoot("r")
                                .WithRecord("abc")
                                .Slice(2, 0, 6, true, {8, 9}))[0];
  const ReadInventory inventory = Inventory();
  EXPECT_EQ(inventory.header.epoch(), 7u);
  EXPECT_EQ(inventory.header.last_step(), 1u);
  EXPECT_EQ(inventory.header.num_blocks(), 64u);
  EXPECT_EQ(inventory.header.num_host_blocks(), 4u);
  EXPECT_EQ(inventory.header.block_size(), 4u);
  EXPECT_EQ(inventory.header.max_sequences(), 4u);
  EXPECT_EQ(inventory.header.layout_id(), "layout");
  ASSERT_EQ(inventory.rows.size(), 1u);
  const v1::InventoryRow& row = inventory.rows.at(2);
  EXPECT_EQ(row.sequence(), 102u);
  EXPECT_FALSE(row.has_forked_from());
  EXPECT_EQ(row.sample_index(), 3u);
  EXPECT_EQ(row.prompt_length(), 5u);
  EXPECT_THAT(TokensOf(row), ElementsAre(10, 11, 12, 13, 14, 15, drawn));
  EXPECT_EQ(row.computed_tokens(), 6u);
  EXPECT_THAT(row.blocks(), ElementsAre(8, 9));
  EXPECT_EQ(row.record(), "abc");
  EXPECT_EQ(row.cache_root_plus_one(), 1u);
  EXPECT_EQ(inventory.labels.at(8), (Prefix{"r", Tokens(10, 4)}));
  EXPECT_EQ(inventory.labels.at(9), (Prefix{"r", Tokens(10, 6)}));
}

TEST_F(InventoryTest, ASequenceWithInfiniteLogitsLeavesNoRowAndNoLabels) {
  Run(PlanBuilder(1).Start(0, Tokens(10, 6)).WithRoot("r").Slice(0, 0, 4, false, {0, 1}));
  EXPECT_EQ(Inventory().labels.size(), 1u);
  worker_.backend().SpoilLogits();
  Run(PlanBuilder(2).Start(1, Tokens(30, 4)).WithRoot("r").Slice(0, 4, 2, true).Slice(1, 0, 3, false, {2}));
  worker_.backend().SpoilLogits(false);
  Run(PlanBuilder(3).Slice(0, 6, 1, true).Slice(1, 3, 1, true));
  const ReadInventory inventory = Inventory();
  EXPECT_FALSE(inventory.rows.contains(0));
  EXPECT_TRUE(inventory.rows.contains(1));
  ASSERT_EQ(inventory.labels.size(), 1u) << "what the failed sequence has stored is of no use";
  EXPECT_EQ(inventory.labels.at(2), (Prefix{"r", Tokens(30, 4)}));
}

TEST_F(InventoryTest, TheResultsOfTheLastTwoStepsAreThere) {
  std::vector<TokenId> drawn = Run(PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, Blocks(0, 4)));
  for (uint32_t step = 2; step <= 4; ++step) drawn.push_back(Run(PlanBuilder(step).Slice(0, 4 + step, 1, true))[0]);
  const ReadInventory inventory = Inventory();
  ASSERT_EQ(inventory.results.size(), 2u);
  EXPECT_EQ(inventory.results[0].result().step(), 3u);
  EXPECT_THAT(inventory.results[0].result().token_ids(), ElementsAre(drawn[2]));
  EXPECT_EQ(inventory.results[1].result().step(), 4u);
  EXPECT_THAT(inventory.results[1].result().token_ids(), ElementsAre(drawn[3]));
  EXPECT_THAT(inventory.results[1].slice_rows(), ElementsAre(0));
  EXPECT_THAT(inventory.results[1].slice_sequences(), ElementsAre(100));
  EXPECT_THAT(inventory.results[1].slice_first_positions(), ElementsAre(8));
  EXPECT_THAT(inventory.results[1].slice_num_tokens(), ElementsAre(1));
  EXPECT_EQ(inventory.results[1].slice_samples(), std::string(1, 1));
}

TEST_F(InventoryTest, AForkHasItsParentTheRecordAndItsOwnBlocks) {
  Run(PlanBuilder(1).Start(0, Tokens(10, 6)).WithRoot("r").WithRecord("of both").Slice(0, 0, 6, true, {0, 1, 2}));
  Run(PlanBuilder(2).Fork(1, 0, 1).Copy(1, 5).Slice(0, 6, 1, true).Slice(1, 6, 1, true, {5, 6}, 1));
  Run(PlanBuilder(3).Record(1, "of the fork").Slice(0, 7, 1, true).Slice(1, 7, 1, true));
  const ReadInventory inventory = Inventory();
  const v1::InventoryRow& fork = inventory.rows.at(1);
  EXPECT_EQ(fork.forked_from(), 100u);
  EXPECT_EQ(fork.sample_index(), 1u);
  EXPECT_EQ(fork.record(), "of the fork");
  EXPECT_EQ(inventory.rows.at(0).record(), "of both");
  EXPECT_THAT(fork.blocks(), ElementsAre(0, 5, 6));
  EXPECT_EQ(inventory.labels.at(0), (Prefix{"r", Tokens(10, 4)}));
  EXPECT_EQ(inventory.labels.at(1), (Prefix{"r", RowTokens(0, 8)}));
  EXPECT_EQ(inventory.labels.at(5), (Prefix{"r", RowTokens(1, 8)}));
}

v1::RowSampling WithLogprobs() {
  v1::RowSampling sampling = Greedy();
  sampling.set_num_logprobs_plus_one(2);
  sampling.set_num_prompt_logprobs_plus_one(1);
  return sampling;
}

TEST_F(InventoryTest, ARowWithARecordHasTheLogprobsOfItsTokens) {
  Run(PlanBuilder(1).Start(0, Tokens(10, 6), WithLogprobs(), 6).WithRecord("a").Slice(0, 0, 4, false, {0, 1, 2}));
  v1::ScoreColumns scores;
  Run(PlanBuilder(2).Slice(0, 4, 2, true));
  Run(PlanBuilder(3).Slice(0, 6, 1, true));
  for (const v1::InventoryResult& result : Inventory().results) scores.MergeFrom(result.result().scores());
  const v1::InventoryRow row = Inventory().rows.at(0);
  EXPECT_EQ(row.num_logprobs_plus_one(), 2u);
  EXPECT_EQ(row.num_prompt_logprobs_plus_one(), 1u);
  EXPECT_EQ(row.scores().SerializeAsString(), scores.SerializeAsString());
  EXPECT_EQ(row.scores().logprobs_size(), 2);
  EXPECT_EQ(row.scores().top_token_ids_size(), 2);
  EXPECT_EQ(row.prompt_scores().logprobs_size(), 5);
  // The row is too large with its scores, so it comes without them.
  EXPECT_EQ(
      Inventory({.max_row_bytes = static_cast<int64_t>(row.ByteSizeLong()) - 1}).rows.at(0).scores().ByteSizeLong(),
      0u);
  // Another row continues with the tokens, and its start tells the logprobs that are known.
  Run(PlanBuilder(4)
          .Start(1, TokensOf(row), WithLogprobs(), 6)
          .WithRecord("a")
          .WithScores(row.scores())
          .Slice(1, 0, 8, true, {3, 4, 5}));
  const v1::InventoryRow other = Inventory().rows.at(1);
  EXPECT_EQ(other.scores().logprobs_size(), 3);
  EXPECT_EQ(other.scores().logprobs(1), row.scores().logprobs(1));
  EXPECT_EQ(other.prompt_scores().SerializeAsString(), row.prompt_scores().SerializeAsString()) << "computed again";
}

// It draws no token that could have one. The vocabulary is smaller than what it asks for.
TEST_F(InventoryTest, ARowThatReportsCandidatesReportsNoLogprobs) {
  v1::RowSampling sampling = WithLogprobs();
  sampling.set_num_candidates(kMaxCandidates);
  Run(PlanBuilder(1).Start(0, Tokens(10, 6), sampling, 6).WithRecord("a").Slice(0, 0, 6, true, {0, 1}));
  const v1::InventoryRow row = Inventory().rows.at(0);
  EXPECT_EQ(row.num_logprobs_plus_one(), 0u);
  EXPECT_EQ(row.num_prompt_logprobs_plus_one(), 1u);
  EXPECT_GT(row.num_candidates(), 0u);
  EXPECT_LT(row.num_candidates(), static_cast<uint32_t>(kMaxCandidates));
  EXPECT_EQ(row.scores().logprobs_size(), 0);
}

TEST_F(InventoryTest, OneOfSeveralForksHasTheLogprobsOfThePrompt) {
  Run(PlanBuilder(1).Start(0, Tokens(10, 6), WithLogprobs(), 6).WithRecord("a").Slice(0, 0, 5, false, {0, 1}));
  Run(PlanBuilder(2).Fork(1, 0, 1).Slice(0, 5, 1, true).Slice(1, 6, 0, true, {0, 1}));
  const ReadInventory inventory = Inventory();
  EXPECT_EQ(inventory.rows.at(0).prompt_scores().logprobs_size(), 5);
  EXPECT_EQ(inventory.rows.at(1).prompt_scores().logprobs_size(), 0);
  EXPECT_EQ(inventory.rows.at(0).scores().logprobs_size(), 1);
  EXPECT_EQ(inventory.rows.at(1).scores().logprobs_size(), 1);
}

TEST_F(InventoryTest, ASwappedRowHasItsBlocksOfTheHostTierUntilItsTableChanges) {
  Run(PlanBuilder(1).Start(0, Tokens(10, 6)).WithRoot("r").Slice(0, 0, 6, true, {0, 1}));
  // The blocks are swapped out, and in the same step another sequence takes them.
  Run(PlanBuilder(2).SwapOut(0, 3).SwapOut(1, 0).Start(1, Tokens(50, 6)).WithRoot("r").Slice(1, 0, 6, true, {0, 1}));
  ReadInventory inventory = Inventory();
  EXPECT_THAT(inventory.rows.at(0).swapped_entries(), ElementsAre(0, 1));
  EXPECT_THAT(inventory.rows.at(0).host_blocks(), ElementsAre(3, 0));
  EXPECT_THAT(inventory.rows.at(1).swapped_entries(), ElementsAre());
  EXPECT_EQ(inventory.labels.at(kHost + 3), (Prefix{"r", Tokens(10, 4)}));
  EXPECT_EQ(inventory.labels.at(kHost + 0), (Prefix{"r", Tokens(10, 6)}));
  EXPECT_EQ(inventory.labels.at(0), (Prefix{"r", Tokens(50, 4)}));
  EXPECT_EQ(inventory.labels.at(1), (Prefix{"r", Tokens(50, 6)}));

  Run(PlanBuilder(3).SwapIn(3, 40).SwapIn(0, 41).Slice(0, 6, 1, true, {40, 41}));
  inventory = Inventory();
  EXPECT_THAT(inventory.rows.at(0).swapped_entries(), ElementsAre());
  EXPECT_EQ(inventory.labels.at(40), (Prefix{"r", Tokens(10, 4)}));
  EXPECT_EQ(inventory.labels.at(41), (Prefix{"r", RowTokens(0, 7)}));
}

TEST_F(InventoryTest, ARowThatHasEndedIsGoneAndItsBlocksKeepTheirLabels) {
  Run(PlanBuilder(1)
          .Start(0, Tokens(10, 4))
          .WithRoot("r")
          .Start(1, Tokens(50, 4))
          .Slice(0, 0, 4, true, {0, 1})
          .Slice(1, 0, 4, true, {2, 3}));
  Run(PlanBuilder(2).End(0).Slice(1, 4, 1, true));
  const ReadInventory inventory = Inventory();
  EXPECT_EQ(inventory.rows.count(0), 0u);
  EXPECT_EQ(inventory.rows.count(1), 1u);
  EXPECT_EQ(inventory.labels.at(0), (Prefix{"r", Tokens(10, 4)}));
  EXPECT_EQ(inventory.labels.count(2), 0u) << "a row without a root has no labels";
  // A row may end and be taken by another sequence in one plan.
  Run(PlanBuilder(3).End(1).Start(1, Tokens(60, 4)).Slice(1, 0, 4, false, {8}));
  EXPECT_EQ(RowTokens(1), Tokens(60, 4));
  EXPECT_EQ(worker_.Run(PlanBuilder(4).Slice(0, 4, 1, true).plan()).status().message(),
            "slice_rows[0] is 0, which no sequence has taken");
}

TEST_F(InventoryTest, ASessionThatAdoptsGoesOnWithStepOne) {
  std::vector<TokenId> drawn = Run(PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, Blocks(0, 4)));
  drawn.push_back(Run(PlanBuilder(2).Slice(0, 6, 1, true))[0]);
  drawn.push_back(Run(PlanBuilder(3).Slice(0, 7, 1, true))[0]);
  worker_.executor().Reset();
  ASSERT_EQ(Run(PlanBuilder(1).Start(0, Tokens(10, 6)).Slice(0, 0, 6, true, Blocks(0, 4)))[0], drawn[0]);
  worker_.executor().StartOver();
  EXPECT_EQ(Run(PlanBuilder(1).Slice(0, 6, 1, true))[0], drawn[1]);
  EXPECT_EQ(Run(PlanBuilder(2).Slice(0, 7, 1, true))[0], drawn[2]);
}

TEST_F(InventoryTest, AnInventoryIsCutIntoChunksAndKeepsItsLimits) {
  for (uint32_t row = 0; row < 4; ++row) {
    Run(PlanBuilder(row + 1)
            .Start(row, Tokens(static_cast<TokenId>(10 * row), 9))
            .WithRoot(std::string(1, static_cast<char>('a' + row)))
            .WithRecord(std::string(row == 2 ? 600 : 5, 'x'))
            .Slice(row, 0, 9, true, Blocks(4 * row, 3)));
  }
  const std::vector<v1::InventoryChunk> chunks =
      MakeInventory(worker_.executor(), last_steps_, "layout", {.chunk_bytes = 100});
  EXPECT_GT(chunks.size(), 8u);
  const ReadInventory whole = Inventory();
  const ReadInventory cut = Read(chunks);
  EXPECT_EQ(cut.labels, whole.labels);
  EXPECT_EQ(cut.rows.size(), 4u);
  EXPECT_EQ(cut.rows.at(2).record(), std::string(600, 'x'));
  EXPECT_EQ(whole.labels.size(), 12u);
  EXPECT_EQ(whole.header.num_left_out(), 0u);

  const ReadInventory small_rows = Inventory({.max_row_bytes = 500});
  EXPECT_EQ(small_rows.rows.count(2), 0u);
  EXPECT_EQ(small_rows.rows.size(), 3u);
  EXPECT_EQ(small_rows.labels, whole.labels);
  EXPECT_EQ(small_rows.header.num_left_out(), 1u);

  // Rows come before labels, and labels of whole blocks in the order of their prefixes.
  int64_t bytes = 0;
  for (const v1::InventoryChunk& chunk : chunks) bytes += static_cast<int64_t>(chunk.ByteSizeLong());
  const ReadInventory cut_off = Inventory({.max_bytes = kMaxCacheRootBytes + bytes * 3 / 4});
  EXPECT_EQ(cut_off.rows.size(), 4u);
  EXPECT_GT(cut_off.labels.size(), 0u);
  EXPECT_GT(cut_off.header.num_left_out(), 0u);
  EXPECT_LE(cut_off.header.num_left_out() + cut_off.labels.size(), 12u);
}

// The plans of tests/worker/pipeline_test.cc in short: prompts, decode steps, a fork and a row that is taken again.
std::vector<v1::StepPlan> Session() {
  std::vector<v1::StepPlan> plans;
  for (int step = 1; step <= 12; ++step) {
    PlanBuilder plan(step);
    if (step == 1) {
      plan.Start(0, Tokens(3, 5)).WithRoot("r").Slice(0, 0, 5, true, Blocks(0, 8));
      plan.Start(1, Tokens(20, 9)).WithRoot("s").Slice(1, 0, 9, true, Blocks(8, 8));
    } else {
      plan.Slice(0, 5 + step - 2, 1, true).Slice(1, 9 + step - 2, 1, true);
    }
    if (step == 4) plan.Fork(2, 0, 1).Copy(1, 17).Slice(2, 5 + step - 2, 1, true, {0, 17, 18, 19, 20, 21});
    if (step > 4 && step < 8) plan.Slice(2, 5 + step - 2, 1, true);
    if (step == 8) plan.End(2).Start(2, Tokens(40, 6)).WithRoot("r").Slice(2, 0, 6, true, {17, 24, 25});
    plans.push_back(plan.plan());
  }
  return plans;
}

// On the emulated GPU two steps are under way, so the tokens of a step are not known when it begins.
TEST_F(InventoryTest, StepsThatOverlapLeaveTheLabelsOfStepsOneByOne) {
  for (const v1::StepPlan& plan : Session()) ASSERT_TRUE(worker_.Run(plan).ok());
  const ReadInventory one_by_one = Inventory();
  worker_.executor().Reset();
  Executor& executor = worker_.executor();
  const auto finish = [&] {
    v1::StepResult result;
    executor.Finish(&result);
  };
  for (const v1::StepPlan& plan : Session()) {
    while (!executor.CanBegin(plan)) finish();
    ASSERT_TRUE(executor.Begin(plan).ok());
  }
  while (executor.num_begun() > 0) finish();
  const ReadInventory overlapping = Inventory();
  EXPECT_EQ(overlapping.labels, one_by_one.labels);
  EXPECT_EQ(RowTokens(0), TokensOf(one_by_one.rows.at(0)));
  EXPECT_GE(one_by_one.labels.size(), 9u);
  for (const auto& [index, row] : overlapping.rows) {
    const std::vector<TokenId> tokens = TokensOf(row);
    for (uint32_t i = 0; i * 4 < row.computed_tokens(); ++i) {
      const uint32_t end = std::min(row.computed_tokens(), (i + 1) * 4);
      EXPECT_EQ(overlapping.labels.at(row.blocks(static_cast<int>(i))).tokens,
                std::vector<TokenId>(tokens.begin(), tokens.begin() + end));
    }
  }
}

}  // namespace
}  // namespace quire
