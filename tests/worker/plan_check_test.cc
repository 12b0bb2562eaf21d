// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// The worker has 4 rows, 64 blocks of 4 tokens, 64 tokens per step and a vocabulary of 96 tokens. After this plan, row
// 0 has 5 tokens, of which all but the last are computed in blocks 0 and 1. Row 1 has 3 tokens, computed in block 10.
v1::StepPlan FirstPlan() {
  return PlanBuilder(1)
      .Start(0, Tokens(20, 5))
      .Start(1, Tokens(40, 3))
      .Slice(0, 0, 4, false, {0, 1})
      .Slice(1, 0, 3, false, {10})
      .plan();
}

// A valid second plan with a copy, a fork into row 2 and a decode of row 0.
v1::StepPlan SecondPlan() {
  return PlanBuilder(2)
      .Start(2, Tokens(20, 6), Greedy(), 5)
      .Copy(1, 2)
      .Slice(0, 4, 1, true)
      .Slice(2, 4, 2, true, {0, 2})
      .plan();
}

// Returns the sampling parameters of the start in the second plan.
v1::RowSampling* Sampling(v1::StepPlan* plan) {
  return plan->mutable_starts(0)->mutable_sampling();
}

void AddFork(v1::StepPlan* plan, uint32_t row, uint32_t parent) {
  plan->add_fork_rows(row);
  plan->add_fork_parents(parent);
  plan->add_fork_sequences(9);
  plan->add_fork_sample_indices(0);
}

void AddAppend(v1::StepPlan* plan, uint32_t row) {
  plan->add_append_rows(row);
  plan->add_append_token_ids(5);
}

void AddRecord(v1::StepPlan* plan, uint32_t row, const std::string& record) {
  plan->add_record_rows(row);
  plan->add_records(record);
}

struct BadPlan {
  std::string message;  // Part of the error.
  std::function<void(v1::StepPlan*)> spoil;
};

const std::vector<BadPlan>& BadPlans() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static const std::vector<BadPlan>* const plans = new std::vector<BadPlan>{
      {"step is 3, expected is 2", [](auto* p) { p->set_step(3); }},
      {"step is 1, expected is 2", [](auto* p) { p->set_step(1); }},

      {"starts[0].row is 4, it must be below 4", [](auto* p) { p->mutable_starts(0)->set_row(4); }},
      {"starts[1].row is 2, which another start", [](auto* p) { *p->add_starts() = p->starts(0); }},
      {"starts[0].token_ids is empty", [](auto* p) { p->mutable_starts(0)->clear_token_ids(); }},
      {"starts[0].token_ids has 257 tokens, the model's context is 256",
       [](auto* p) { p->mutable_starts(0)->mutable_token_ids()->Resize(257, 1); }},
      {"starts[0].token_ids[5] is 96, the vocabulary has 96 tokens",
       [](auto* p) { p->mutable_starts(0)->set_token_ids(5, 96); }},
      {"starts[0].prompt_length is 0", [](auto* p) { p->mutable_starts(0)->set_prompt_length(0); }},
      {"starts[0].prompt_length is 7", [](auto* p) { p->mutable_starts(0)->set_prompt_length(7); }},

      {"sampling.temperature is -1, it must be 0 to the largest float32 number (about 3.4e38)",
       [](auto* p) { Sampling(p)->set_temperature(-1); }},
      {"sampling.temperature is nan", [](auto* p) { Sampling(p)->set_temperature(kNan); }},
      {"sampling.top_n_sigma is -1, it must be 0 to the largest float32 number (about 3.4e38)",
       [](auto* p) { Sampling(p)->set_top_n_sigma(-1); }},
      {"sampling.top_p is 0, it must be above 0", [](auto* p) { Sampling(p)->set_top_p(0); }},
      {"sampling.top_p is 1.5", [](auto* p) { Sampling(p)->set_top_p(1.5); }},
      {"sampling.top_p is 1.0000001,", [](auto* p) { Sampling(p)->set_top_p(1.0000001f); }},
      {"sampling.xtc_probability is 1.5", [](auto* p) { Sampling(p)->set_xtc_probability(1.5f); }},
      {"sampling.xtc_threshold is -0.5", [](auto* p) { Sampling(p)->set_xtc_threshold(-0.5f); }},
      {"sampling.min_p is nan", [](auto* p) { Sampling(p)->set_min_p(kNan); }},
      {"sampling.presence_penalty is nan, it must be the lowest float32 number (about -3.4e38) to the largest float32 "
       "number (about 3.4e38)",
       [](auto* p) { Sampling(p)->set_presence_penalty(kNan); }},
      {"sampling.frequency_penalty is inf",
       [](auto* p) { Sampling(p)->set_frequency_penalty(std::numeric_limits<float>::infinity()); }},
      {"sampling.repetition_penalty is 0", [](auto* p) { Sampling(p)->set_repetition_penalty(0); }},
      {"sampling.biases has 0 entries, bias_token_ids has 1", [](auto* p) { Sampling(p)->add_bias_token_ids(1); }},
      {"sampling.bias_token_ids[0] is 100",
       [](auto* p) {
         Sampling(p)->add_bias_token_ids(100);
         Sampling(p)->add_biases(1);
       }},
      {"sampling.biases is nan",
       [](auto* p) {
         Sampling(p)->add_bias_token_ids(1);
         Sampling(p)->add_biases(kNan);
       }},
      {"sampling.allowed_token_ids[0] is 96", [](auto* p) { Sampling(p)->add_allowed_token_ids(96); }},
      {"sampling.min_tokens_masked_ids[0] is 96", [](auto* p) { Sampling(p)->add_min_tokens_masked_ids(96); }},
      {"sampling.bad_word_lengths contains 0", [](auto* p) { Sampling(p)->add_bad_word_lengths(0); }},
      {"sampling.bad_word_lengths add up to 8589934590, bad_word_token_ids has 0",
       [](auto* p) {
         Sampling(p)->add_bad_word_lengths(0xffffffff);
         Sampling(p)->add_bad_word_lengths(0xffffffff);
       }},
      {"sampling.bad_word_token_ids[0] is 4294967295",
       [](auto* p) {
         Sampling(p)->add_bad_word_token_ids(0xffffffff);
         Sampling(p)->add_bad_word_lengths(1);
       }},
      {"sampling.num_logprobs_plus_one is 1026, the limit is 1025",
       [](auto* p) { Sampling(p)->set_num_logprobs_plus_one(1026); }},
      {"sampling.num_prompt_logprobs_plus_one is 1026, the limit is 1025",
       [](auto* p) { Sampling(p)->set_num_prompt_logprobs_plus_one(1026); }},

      {"copy_destinations has 1 entries, copy_sources has 2", [](auto* p) { p->add_copy_sources(5); }},
      {"copy_sources[0] is 64, it must be below 64", [](auto* p) { p->set_copy_sources(0, 64); }},
      {"copy_destinations[0] is 64, it must be below 64", [](auto* p) { p->set_copy_destinations(0, 64); }},
      {"copy_destinations[1] is 2, which is already a destination",
       [](auto* p) {
         p->add_copy_sources(5);
         p->add_copy_destinations(2);
       }},
      {"copy_sources[1] is 2, which is also a destination",
       [](auto* p) {
         p->add_copy_sources(2);
         p->add_copy_destinations(9);
       }},

      {"slice_first_positions has 1 entries, slice_rows has 2",
       [](auto* p) { p->mutable_slice_first_positions()->RemoveLast(); }},
      {"slice_num_tokens has 3 entries, slice_rows has 2", [](auto* p) { p->add_slice_num_tokens(1); }},
      {"slice_first_changed_blocks has 3 entries", [](auto* p) { p->add_slice_first_changed_blocks(1); }},
      {"slice_tail_lengths has 1 entries", [](auto* p) { p->mutable_slice_tail_lengths()->RemoveLast(); }},
      {"slice_samples has 3 entries, slice_rows has 2", [](auto* p) { p->mutable_slice_samples()->push_back(1); }},
      {"slice_samples[0] is 2, it must be 0 or 1", [](auto* p) { (*p->mutable_slice_samples())[0] = 2; }},
      {"slice_rows[0] is 4, it must be below 4", [](auto* p) { p->set_slice_rows(0, 4); }},
      {"slice_rows[1] is 0, which an earlier slice", [](auto* p) { p->set_slice_rows(1, 0); }},
      {"slice_rows[0] is 3, which no sequence has taken", [](auto* p) { p->set_slice_rows(0, 3); }},
      {"slice 0 samples after position 4, its row has 5 tokens", [](auto* p) { p->set_slice_num_tokens(0, 0); }},
      {"slice_num_tokens add up to 67, the limit per step is 64", [](auto* p) { p->set_slice_num_tokens(0, 65); }},
      {"slice_num_tokens add up to 4294967297", [](auto* p) { p->set_slice_num_tokens(0, 0xffffffff); }},
      {"slice_tail_lengths add up to 3, block_tails has 2", [](auto* p) { p->set_slice_tail_lengths(0, 1); }},
      {"slice_tail_lengths add up to 4294967295", [](auto* p) { p->set_slice_tail_lengths(1, 0xffffffff); }},
      {"block_tails[1] is 64, it must be below 64", [](auto* p) { p->set_block_tails(1, 64); }},

      {"slice 0 ends at position 6, its row has 5 tokens", [](auto* p) { p->set_slice_num_tokens(0, 2); }},
      {"slice 0 ends at position 4294967296", [](auto* p) { p->set_slice_first_positions(0, 0xffffffff); }},
      {"slice 0 samples after position 4, its row has 5 tokens", [](auto* p) { p->set_slice_first_positions(0, 3); }},
      {"slice_first_changed_blocks[0] is 3, its row's table has 2 entries",
       [](auto* p) { p->set_slice_first_changed_blocks(0, 3); }},
      {"the block table of slice 1 has 1 entries, 6 tokens need 2",
       [](auto* p) {
         p->set_slice_tail_lengths(1, 1);
         p->mutable_block_tails()->RemoveLast();
       }},
      {"the block table of slice 1 has 66 entries, the pool has 64 blocks",
       [](auto* p) {
         p->set_slice_tail_lengths(1, 66);
         p->mutable_block_tails()->Resize(66, 3);
       }},
      {"block 1 is written by slice 1 and by slice 0", [](auto* p) { p->set_block_tails(1, 1); }},
      {"block 1 is read by slice 1 and written by slice 0", [](auto* p) { p->set_block_tails(0, 1); }},
      {"block 2 is read by slice 1 and written by slice 1", [](auto* p) { p->set_block_tails(0, 2); }},
  };
  return *plans;
}

// A valid second plan with forks and appends. Row 2 is a beam that continues with token 50. Row 3 is a second sample of
// row 0 and shares all its blocks. Row 0 samples.
v1::StepPlan ForkPlan() {
  v1::RowSampling beam = Greedy();
  beam.set_num_candidates(2);
  return PlanBuilder(2)
      .Start(2, Tokens(20, 3), beam)
      .Fork(3, 0, 1)
      .Append(2, 50)
      .Slice(2, 0, 4, true, {20})
      .Slice(3, 5, 0, true)
      .Slice(0, 4, 1, true)
      .plan();
}

const std::vector<BadPlan>& BadForkPlans() {
  static const std::vector<BadPlan>* const plans = new std::vector<BadPlan>{
      {"starts[0].sampling.num_candidates is 1025, the limit is 1024",
       [](auto* p) { Sampling(p)->set_num_candidates(1025); }},

      {"fork_parents has 0 entries, fork_rows has 1", [](auto* p) { p->clear_fork_parents(); }},
      {"fork_sequences has 2 entries, fork_rows has 1", [](auto* p) { p->add_fork_sequences(1); }},
      {"fork_sample_indices has 0 entries, fork_rows has 1", [](auto* p) { p->clear_fork_sample_indices(); }},
      {"fork_rows[0] is 4, it must be below 4", [](auto* p) { p->set_fork_rows(0, 4); }},
      {"fork_parents[0] is 4, it must be below 4", [](auto* p) { p->set_fork_parents(0, 4); }},
      {"fork_rows[0] is 2, which a start of the plan takes", [](auto* p) { p->set_fork_rows(0, 2); }},
      {"fork_parents[0] is 3, which is the fork's own row", [](auto* p) { p->set_fork_parents(0, 3); }},
      {"fork_rows[1] is 3, which an earlier fork of the plan takes", [](auto* p) { AddFork(p, 3, 1); }},
      {"fork_parents[1] is 3, which an earlier fork of the plan takes", [](auto* p) { AddFork(p, 1, 3); }},
      {"fork_parents[0] is 3, which no sequence has taken",
       [](auto* p) {
         p->set_fork_rows(0, 1);
         p->set_fork_parents(0, 3);
         p->set_slice_rows(1, 1);
         p->set_slice_rows(2, 3);
       }},

      {"append_token_ids has 0 entries, append_rows has 1", [](auto* p) { p->clear_append_token_ids(); }},
      {"end_rows[0] is 4, it must be below 4", [](auto* p) { p->add_end_rows(4); }},
      {"end_rows[1] is 3, which an earlier end of the plan has",
       [](auto* p) {
         p->add_end_rows(3);
         p->add_end_rows(3);
       }},
      {"fork_parents[0] is 0, which no sequence has taken", [](auto* p) { p->add_end_rows(0); }},
      {"records has 0 entries, record_rows has 1", [](auto* p) { p->add_record_rows(0); }},
      {"record_rows[0] is 4, it must be below 4", [](auto* p) { AddRecord(p, 4, "a"); }},
      {"record_rows[1] is 0, which an earlier record of the plan has",
       [](auto* p) {
         AddRecord(p, 0, "a");
         AddRecord(p, 0, "b");
       }},
      {"record_rows[0] is 1, which no sequence has taken",
       [](auto* p) {
         p->add_end_rows(1);
         AddRecord(p, 1, "a");
       }},
      {"records[0] has 65537 bytes, the limit is 65536",
       [](auto* p) { AddRecord(p, 0, std::string(65537, 'x')); }},
      {"starts[0].record has 65537 bytes, the limit is 65536",
       [](auto* p) { p->mutable_starts(0)->set_record(std::string(65537, 'x')); }},
      {"starts[0].cache_root has 1025 bytes, the limit is 1024",
       [](auto* p) { p->mutable_starts(0)->set_cache_root(std::string(1025, 'x')); }},

      {"append_rows[0] is 4, it must be below 4", [](auto* p) { p->set_append_rows(0, 4); }},
      {"append_token_ids[0] is 96, it must be below 96", [](auto* p) { p->set_append_token_ids(0, 96); }},
      {"append_rows[1] is 2, which an earlier append of the plan has", [](auto* p) { AddAppend(p, 2); }},
      {"append_rows[1] is 1, which draws its tokens: its num_candidates is 0", [](auto* p) { AddAppend(p, 1); }},

      {"slice_num_tokens[0] is 0, an append of the plan changes row 2", [](auto* p) { p->set_slice_num_tokens(0, 0); }},
      {"slice_num_tokens[1] is 0, such a slice samples, slice_samples[1] is 0",
       [](auto* p) { (*p->mutable_slice_samples())[1] = 0; }},
      {"slice_num_tokens[1] is 0, its parent, row 0, is taken by a fork of the plan",
       [](auto* p) { AddFork(p, 0, 1); }},
      {"slice_num_tokens[1] is 0, an append of the plan changes row 0", [](auto* p) { AddAppend(p, 0); }},
      {"slice_num_tokens[1] is 0, an append of the plan changes row 3", [](auto* p) { AddAppend(p, 3); }},
      {"slice_num_tokens[1] is 0, its parent, row 0, has no slice", [](auto* p) { p->set_slice_rows(2, 1); }},
      {"slice_num_tokens[1] is 0, its parent's slice, 2, does not sample",
       [](auto* p) { (*p->mutable_slice_samples())[2] = 0; }},
      {"slice_num_tokens[1] is 0, its position is 4, its parent's slice, 2, ends at 5",
       [](auto* p) { p->set_slice_first_positions(1, 4); }},
      {"its position is 5, its parent's slice, 2, ends at 4294967296",
       [](auto* p) { p->set_slice_first_positions(2, 0xffffffff); }},
      {"the block table of slice 1 has 1 entries, 5 tokens need 2",
       [](auto* p) {
         p->set_slice_tail_lengths(1, 1);
         p->add_block_tails(0);
       }},
      {"block 0 is read by slice 2 and written by slice 0", [](auto* p) { p->set_block_tails(0, 0); }},
  };
  return *plans;
}

// A valid second plan with swaps. A block is swapped out to block 3 of the host tier and comes back as block 30.
v1::StepPlan SwapPlan() {
  return PlanBuilder(2).SwapOut(1, 3).SwapIn(3, 30).plan();
}

const std::vector<BadPlan>& BadSwapPlans() {
  static const std::vector<BadPlan>* const plans = new std::vector<BadPlan>{
      {"swap_out_host_blocks has 0 entries, swap_out_blocks has 1", [](auto* p) { p->clear_swap_out_host_blocks(); }},
      {"swap_in_host_blocks has 2 entries, swap_in_blocks has 1", [](auto* p) { p->add_swap_in_host_blocks(1); }},
      {"swap_out_blocks[0] is 64, it must be below 64", [](auto* p) { p->set_swap_out_blocks(0, 64); }},
      {"swap_out_host_blocks[0] is 8, it must be below 8", [](auto* p) { p->set_swap_out_host_blocks(0, 8); }},
      {"swap_in_host_blocks[0] is 8, it must be below 8", [](auto* p) { p->set_swap_in_host_blocks(0, 8); }},
      {"swap_in_blocks[0] is 64, it must be below 64", [](auto* p) { p->set_swap_in_blocks(0, 64); }},
      {"swap_out_host_blocks[1] is 3, which is already a destination",
       [](auto* p) {
         p->add_swap_out_blocks(2);
         p->add_swap_out_host_blocks(3);
       }},
      {"swap_in_blocks[1] is 30, which is already a destination",
       [](auto* p) {
         p->add_swap_in_host_blocks(4);
         p->add_swap_in_blocks(30);
       }},
  };
  return *plans;
}

TEST(PlanCheckTest, TheUnspoiledPlanIsGood) {
  TestWorker worker({.num_host_blocks = 8});
  ASSERT_TRUE(worker.Run(FirstPlan()).ok());
  const auto result = worker.Run(SecondPlan());
  EXPECT_TRUE(result.ok()) << result.status();
  worker.executor().Reset();
  ASSERT_TRUE(worker.Run(FirstPlan()).ok());
  const auto fork_result = worker.Run(ForkPlan());
  EXPECT_TRUE(fork_result.ok()) << fork_result.status();
  worker.executor().Reset();
  ASSERT_TRUE(worker.Run(FirstPlan()).ok());
  const auto swap_result = worker.Run(SwapPlan());
  EXPECT_TRUE(swap_result.ok()) << swap_result.status();
}

// Runs the first plan and then each of the broken plans as the second one.
void ExpectRefusals(const v1::StepPlan& good, const std::vector<BadPlan>& bad_plans) {
  TestWorker worker({.num_host_blocks = 8});
  for (const BadPlan& bad : bad_plans) {
    worker.executor().Reset();
    ASSERT_TRUE(worker.Run(FirstPlan()).ok());
    v1::StepPlan plan = good;
    bad.spoil(&plan);
    const absl::Status status = worker.Run(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
}

TEST(PlanCheckTest, EveryBadPlanIsRefusedByName) {
  ExpectRefusals(SecondPlan(), BadPlans());
}

TEST(PlanCheckTest, EveryBadForkIsRefusedByName) {
  ExpectRefusals(ForkPlan(), BadForkPlans());
}

TEST(PlanCheckTest, EveryBadSwapIsRefusedByName) {
  ExpectRefusals(SwapPlan(), BadSwapPlans());
}

TEST(PlanCheckTest, WithoutAHostTierNothingIsSwapped) {
  TestWorker worker;
  const absl::Status status = worker.Run(PlanBuilder(1).SwapOut(1, 0).plan()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("swap_out_blocks has 1 entries and swap_in_blocks 0, this worker has no host tier"));
}

TEST(PlanCheckTest, AppendsNeedARowAndEndAtTheContext) {
  TestWorker worker({.max_tokens_per_step = 256});
  const auto unknown = worker.Run(PlanBuilder(1).Append(0, 5).plan());
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("append_rows[0] is 0, which no sequence has taken"));
  worker.executor().Reset();
  v1::RowSampling beam = Greedy();
  beam.set_num_candidates(2);
  ASSERT_TRUE(worker.Run(PlanBuilder(1).Start(0, std::vector<TokenId>(255, 7), beam).Append(0, 5).plan()).ok());
  const absl::Status beyond = worker.Run(PlanBuilder(2).Append(0, 5).plan()).status();
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("append_rows[0] is 0, which has 256 tokens, the model's context is 256"));
}

TEST(PlanCheckTest, ASliceLeavesNoGap) {
  TestWorker worker;
  ASSERT_TRUE(worker.Run(PlanBuilder(1).Start(1, Tokens(40, 8)).Slice(1, 0, 3, false, {10, 11}).plan()).ok());
  const absl::Status status = worker.Run(PlanBuilder(2).Slice(1, 4, 1, false).plan()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("slice_first_positions[0] is 4, its row is computed up to 3"));
}

TEST(PlanCheckTest, TheSameRowMayBeComputedAgain) {
  TestWorker worker;
  ASSERT_TRUE(worker.Run(FirstPlan()).ok());
  EXPECT_TRUE(worker.Run(PlanBuilder(2).Slice(0, 2, 3, true).plan()).ok());
}

TEST(PlanCheckTest, AStepMayFillTheWholeContext) {
  TestWorker worker({.max_tokens_per_step = 256});
  const auto result =
      worker.Run(PlanBuilder(1).Start(0, std::vector<TokenId>(256, 7)).Slice(0, 0, 256, true, Blocks(0, 64)).plan());
  ASSERT_TRUE(result.ok()) << result.status();
  const absl::Status beyond = worker.Run(PlanBuilder(2).Slice(0, 256, 1, true).plan()).status();
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("slice 0 ends at position 257, the model's context is 256"));
}

}  // namespace
}  // namespace quire
