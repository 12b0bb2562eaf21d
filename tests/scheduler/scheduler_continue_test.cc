// SPDX-License-Identifier: Apache-2.0

// Tests that requests continue with the tokens that their samples have already, as if they had drawn them here.

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/sim/shadow_model.h"
#include "tests/sim/shadow_worker.h"

namespace quire {
namespace {

class SchedulerContinueTest : public ::testing::Test {
 protected:
  static Request MakeRequest(int num_samples) {
    Request request;
    request.id = RequestId{1};
    for (int i = 1; i <= 9; ++i) request.prompt.push_back(i);
    request.max_tokens = 12;
    request.num_samples = num_samples;
    request.stop_token_ids = {ShadowModel::kStopToken};
    request.sampling.seed = 1000;
    request.sampling.presence_penalty = 0.5F;
    return request;
  }

  // Runs the request in a new scheduler. Checks that it emits, for each of its samples, what `solo` has behind the
  // tokens that it comes with.
  void CheckRemainder(const Request& request, const SoloOutput& solo, bool loses_worker) {
    SchedulerOptions options;
    options.max_tokens_per_step = 16;
    options.max_chunk_tokens = 8;
    PagedBlockManager blocks({.num_blocks = 64, .block_size = 4});
    Scheduler scheduler(options, &blocks);
    std::optional<ShadowWorker> worker(std::in_place, model_, 64, 4, options.max_sequences);
    ASSERT_EQ(scheduler.Submit(request), absl::OkStatus());
    std::map<int, std::vector<TokenId>> tokens;
    for (const Request::ContinuedSample& sample : request.continued) tokens[sample.sample_index] = sample.tokens;
    std::map<int, FinishReason> ends;
    for (int i = 0; i < 200 && scheduler.counts().waiting + scheduler.counts().running > 0; ++i) {
      const StepPlan plan = scheduler.Plan();
      ASSERT_FALSE(plan.empty());
      absl::StatusOr<StepResult> result = worker->Execute(plan);
      ASSERT_TRUE(result.ok()) << result.status();
      if (loses_worker && i == 1) {
        scheduler.AbandonAll();
        worker.emplace(model_, 64, 4, options.max_sequences);
        continue;
      }
      const StepOutput output = scheduler.Commit(*std::move(result));
      for (const Emission& emission : output.emissions) {
        std::vector<TokenId>& all = tokens[emission.sample_index];
        EXPECT_EQ(emission.position, 9 + static_cast<int>(all.size()));
        all.push_back(emission.token.token);
      }
      for (const Finished& finished : output.finished) ends[finished.sample_index] = finished.reason;
    }
    for (const Request::ContinuedSample& sample : request.continued) {
      EXPECT_EQ(tokens[sample.sample_index], solo.samples[sample.sample_index].tokens);
      EXPECT_EQ(ends.at(sample.sample_index), solo.samples[sample.sample_index].reason);
    }
    EXPECT_EQ(ends.size(), request.continued.size());
    EXPECT_EQ(blocks.counts().used, 0);
  }

  // Returns the request with the first tokens of each sample. Samples that have ended are left out.
  static Request Continue(Request request, const SoloOutput& solo, const std::vector<size_t>& num_tokens) {
    for (size_t i = 0; i < solo.samples.size(); ++i) {
      const std::vector<TokenId>& all = solo.samples[i].tokens;
      if (num_tokens[i] >= all.size()) continue;
      request.continued.push_back(
          {.sample_index = static_cast<int>(i), .tokens = {all.begin(), all.begin() + num_tokens[i]}});
    }
    return request;
  }

  ShadowModel model_{.vocab_size = 50, .stop_percent = 5};
};

TEST_F(SchedulerContinueTest, OneSampleGoesOnBehindAnyToken) {
  const Request request = MakeRequest(1);
  const SoloOutput solo = SoloRun(model_, request);
  for (const bool loses_worker : {false, true}) {
    for (size_t i = 0; i < solo.samples[0].tokens.size(); ++i) {
      SCOPED_TRACE(i);
      CheckRemainder(Continue(request, solo, {i}), solo, loses_worker);
    }
  }
}

TEST_F(SchedulerContinueTest, SamplesGoOnBehindDifferentTokens) {
  const Request request = MakeRequest(4);
  const SoloOutput solo = SoloRun(model_, request);
  constexpr size_t kAll = 100;
  for (const bool loses_worker : {false, true}) {
    for (size_t i = 0; i < 5; ++i) {
      SCOPED_TRACE(i);
      CheckRemainder(Continue(request, solo, {i, i + 1, i, i}), solo, loses_worker);
      CheckRemainder(Continue(request, solo, {kAll, 0, i, 1}), solo, loses_worker);
      CheckRemainder(Continue(request, solo, {kAll, kAll, 0, kAll}), solo, loses_worker);
    }
  }
}

}  // namespace
}  // namespace quire
