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

// A worker of 4 rows, 64 blocks of 4 tokens, 64 tokens per step, 96 tokens of vocabulary. Row 0 holds 5 tokens, all but
// the last computed in blocks 0 and 1; row 1 holds 3, computed in block 10.
v1::StepPlan FirstPlan() {
  return PlanBuilder(1)
      .Start(0, Tokens(20, 5))
      .Start(1, Tokens(40, 3))
      .Slice(0, 0, 4, false, {0, 1})
      .Slice(1, 0, 3, false, {10})
      .plan();
}

// A good second plan: a copy, a fork into row 2, a decode of row 0.
v1::StepPlan SecondPlan() {
  return PlanBuilder(2)
      .Start(2, Tokens(20, 6), Greedy(), 5)
      .Copy(1, 2)
      .Slice(0, 4, 1, true)
      .Slice(2, 4, 2, true, {0, 2})
      .plan();
}

// Sampling parameters of the start in the second plan.
v1::RowSampling* Sampling(v1::StepPlan* plan) {
  return plan->mutable_starts(0)->mutable_sampling();
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

      {"sampling.temperature is -1", [](auto* p) { Sampling(p)->set_temperature(-1); }},
      {"sampling.temperature is nan", [](auto* p) { Sampling(p)->set_temperature(kNan); }},
      {"sampling.top_p is 0, it must be above 0", [](auto* p) { Sampling(p)->set_top_p(0); }},
      {"sampling.top_p is 1.5", [](auto* p) { Sampling(p)->set_top_p(1.5); }},
      {"sampling.min_p is nan", [](auto* p) { Sampling(p)->set_min_p(kNan); }},
      {"sampling.presence_penalty is nan", [](auto* p) { Sampling(p)->set_presence_penalty(kNan); }},
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
      {"sampling.bad_word_lengths has a 0", [](auto* p) { Sampling(p)->add_bad_word_lengths(0); }},
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
      {"copy_destinations[1] is 2, which is a destination already",
       [](auto* p) {
         p->add_copy_sources(5);
         p->add_copy_destinations(2);
       }},
      {"copy_sources[1] is 2, which is a destination as well",
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
      {"slice_samples[0] is 2, allowed are 0 and 1", [](auto* p) { (*p->mutable_slice_samples())[0] = 2; }},
      {"slice_rows[0] is 4, it must be below 4", [](auto* p) { p->set_slice_rows(0, 4); }},
      {"slice_rows[1] is 0, which an earlier slice", [](auto* p) { p->set_slice_rows(1, 0); }},
      {"slice_rows[0] is 3, which no sequence has taken", [](auto* p) { p->set_slice_rows(0, 3); }},
      {"slice_num_tokens[0] is 0", [](auto* p) { p->set_slice_num_tokens(0, 0); }},
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

TEST(PlanCheckTest, TheUnspoiledPlanIsGood) {
  TestWorker worker;
  ASSERT_TRUE(worker.Run(FirstPlan()).ok());
  const auto result = worker.Run(SecondPlan());
  EXPECT_TRUE(result.ok()) << result.status();
}

TEST(PlanCheckTest, EveryBadPlanIsRefusedByName) {
  TestWorker worker;
  for (const BadPlan& bad : BadPlans()) {
    worker.executor().Reset();
    ASSERT_TRUE(worker.Run(FirstPlan()).ok());
    v1::StepPlan plan = SecondPlan();
    bad.spoil(&plan);
    const absl::Status status = worker.Run(plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(bad.message));
  }
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
