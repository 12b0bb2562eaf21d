// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <vector>

#include "tests/fuzz/message_mutator.h"
#include "tests/random.h"
#include "tests/worker/inventory_reader.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"
#include "worker/inventory.h"

namespace quire {
namespace {

v1::StepPlan Mutated(v1::StepPlan plan, Random* random) {
  MessageMutator mutator(random);
  for (int i = random->Between(1, 3); i > 0; --i) mutator.Mutate(&plan);
  return plan;
}

// A session that uses every feature: prefill, chunks, a copy, swaps, forks, appends, logprobs, penalties, bad words,
// roots of the prefix cache, records and ends.
std::vector<v1::StepPlan> GoodSession() {
  v1::RowSampling rich = Greedy();
  rich.set_temperature(0.7f);
  rich.set_top_k(20);
  rich.set_top_p(0.9f);
  rich.set_frequency_penalty(0.3f);
  rich.set_num_logprobs_plus_one(3);
  rich.set_num_prompt_logprobs_plus_one(2);
  for (uint32_t token : {4, 5, 6}) rich.add_bad_word_token_ids(token);
  rich.add_bad_word_lengths(1);
  rich.add_bad_word_lengths(2);
  rich.add_bias_token_ids(9);
  rich.add_biases(1.5f);
  rich.add_min_tokens_masked_ids(2);
  rich.set_min_tokens(2);
  v1::RowSampling beam = rich;
  beam.set_num_candidates(4);
  return {
      PlanBuilder(1)
          .Start(0, Tokens(20, 10), rich)
          .WithRoot("root")
          .WithRecord("first")
          .Slice(0, 0, 6, false, {0, 1, 2})
          .plan(),
      PlanBuilder(2).Start(1, Tokens(40, 3)).WithRoot("root").Slice(0, 6, 4, true).Slice(1, 0, 3, true, {10}).plan(),
      PlanBuilder(3)
          .Start(2, Tokens(20, 11), rich, 10, 1)
          .Copy(2, 5)
          .Slice(2, 10, 1, true, {0, 1, 5})
          .Slice(0, 10, 1, true)
          .Record(0, "second")
          .Slice(1, 3, 1, true, {11}, 1)
          .plan(),
      PlanBuilder(4)
          .End(0)
          .Start(0, Tokens(20, 6), beam)
          .WithRoot("root")
          .Fork(1, 0)
          .Slice(0, 0, 6, true, {20, 21})
          .Slice(1, 6, 0, true, {20, 21})
          .Slice(2, 11, 1, true)
          .plan(),
      PlanBuilder(5)
          .Fork(3, 0)
          .Append(0, 7)
          .Append(3, 8)
          .SwapOut(1, 3)
          .SwapIn(3, 40)
          .Copy(21, 26)
          .Slice(3, 6, 1, true, {26}, 1)
          .Slice(0, 6, 1, true)
          .plan()};
}

// Changes plans at random, in their fields and in their bytes. The worker must answer or refuse every such plan and
// never crash, and a new session must work afterwards. The sanitizers run this test.
TEST(PlanMutationTest, NoPlanCrashesTheWorker) {
  constexpr uint32_t kNumSessions = 3000;
  TestWorker worker({.num_host_blocks = 64, .max_logit_rows = 3});
  worker.executor().KeepLabels();
  const std::vector<v1::StepPlan> good = GoodSession();
  int num_refused = 0;
  for (uint32_t seed = 1; seed <= kNumSessions; ++seed) {
    Random random(seed);
    worker.executor().Reset();
    const size_t spoiled = random.Below(static_cast<int>(good.size()));
    bool is_refused = false;
    for (size_t i = 0; i < good.size(); ++i) {
      const auto result = worker.Run(i == spoiled ? Mutated(good[i], &random) : good[i]);
      if (result.ok()) continue;
      ASSERT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << "seed " << seed << result.status();
      ASSERT_FALSE(result.status().message().empty()) << "seed " << seed;
      ++num_refused;
      is_refused = true;
      break;
    }
    if (!is_refused) Read(MakeInventory(worker.executor(), LastSteps(), "layout"));
  }
  EXPECT_GT(num_refused, static_cast<int>(kNumSessions) / 2);
  worker.executor().Reset();
  for (const v1::StepPlan& plan : good) {
    const absl::Status status = worker.Run(plan).status();
    ASSERT_TRUE(status.ok()) << status;
  }
}

}  // namespace
}  // namespace quire
