// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SCHEDULER_SCHEDULER_FIXTURE_H_
#define QUIRE_TESTS_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"
#include "tests/sim/shadow_worker.h"

namespace quire {

// The slices of a plan, one word each: "1:5+3*" is row 1, positions 5, 6 and 7, and draws a sample.
inline std::string Shape(const StepPlan& plan) {
  std::string shape;
  for (const SequenceSlice& slice : plan.slices) {
    absl::StrAppend(&shape, shape.empty() ? "" : " ", Value(slice.row), ":", slice.first_position, "+",
                    slice.num_tokens, slice.sample ? "*" : "");
  }
  return shape;
}

// A scheduler over blocks of 4 tokens, with a shadow worker. Every step checks the block accounting.
class SchedulerTest : public ::testing::Test {
 protected:
  // There is no watermark unless a test asks for one.
  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.watermark = 0;
    return options;
  }

  void Make(int num_blocks, const SchedulerOptions& options = Options()) {
    scheduler_.reset();
    blocks_ = std::make_unique<PagedBlockManager>(
        PagedBlockManagerOptions{.num_blocks = num_blocks, .block_size = 4, .has_prefix_cache = has_prefix_cache_});
    scheduler_ = std::make_unique<Scheduler>(options, blocks_.get());
    num_rows_ = options.max_sequences;
    NewWorker();
  }

  void NewWorker() { worker_ = std::make_unique<ShadowWorker>(model_, blocks_->num_blocks(), 4, num_rows_); }

  // The prompt is 1, 2, ..., and every other field has its default.
  static Request MakeRequest(uint64_t id, int prompt_length, int max_tokens) {
    Request request;
    request.id = RequestId{id};
    for (int i = 1; i <= prompt_length; ++i) request.prompt.push_back(i);
    request.max_tokens = max_tokens;
    request.sampling.seed = id;
    return request;
  }

  void Submit(const Request& request) {
    requests_[request.id] = request;
    ASSERT_EQ(scheduler_->Submit(request), absl::OkStatus());
  }
  void Submit(uint64_t id, int prompt_length, int max_tokens) { Submit(MakeRequest(id, prompt_length, max_tokens)); }
  void Submit(uint64_t id, int prompt_length, int max_tokens, int priority) {
    Request request = MakeRequest(id, prompt_length, max_tokens);
    request.priority = priority;
    Submit(request);
  }

  StepPlan Plan() {
    StepPlan plan = scheduler_->Plan();
    EXPECT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    if (!plan.empty()) sent_.push_back(plan);
    return plan;
  }

  // Runs the oldest plan in flight on the worker and commits it.
  StepOutput Commit() {
    absl::StatusOr<StepResult> result = worker_->Execute(sent_.front());
    sent_.pop_front();
    if (!result.ok()) {
      ADD_FAILURE() << result.status();
      std::abort();
    }
    StepOutput output = scheduler_->Commit(*std::move(result));
    EXPECT_EQ(blocks_->CheckIntegrity(), absl::OkStatus());
    for (const Emission& emission : output.emissions) {
      if (emission.sample_index != 0) continue;
      emitted_[emission.request].push_back(emission.token.token);
      const int prompt_length = static_cast<int>(requests_[emission.request].prompt.size());
      EXPECT_EQ(emission.position + 1, prompt_length + static_cast<int>(emitted_[emission.request].size()));
    }
    return output;
  }

  // Makes one whole step and returns the shape of its plan.
  std::string Step() {
    const std::string shape = Shape(Plan());
    if (!shape.empty()) output_ = Commit();
    return shape;
  }

  void RunToTheEnd() {
    for (int i = 0; i < 1000 && scheduler_->counts().waiting + scheduler_->counts().running > 0; ++i) Step();
    EXPECT_EQ(scheduler_->counts().waiting + scheduler_->counts().running, 0);
    EXPECT_EQ(blocks_->counts().used, 0);
  }

  // The tokens of the first sample emitted so far, and those that the request would generate alone.
  const std::vector<TokenId>& Emitted(uint64_t id) { return emitted_[RequestId{id}]; }
  std::vector<TokenId> Solo(uint64_t id) { return SoloTokens(model_, requests_[RequestId{id}]); }

  ShadowModel model_;
  std::unique_ptr<PagedBlockManager> blocks_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ShadowWorker> worker_;
  int num_rows_ = 0;
  bool has_prefix_cache_ = false;  // Without the cache it is easier to see what is recomputed.
  StepOutput output_;              // The output of the last Step().
  std::deque<StepPlan> sent_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, std::vector<TokenId>> emitted_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SCHEDULER_SCHEDULER_FIXTURE_H_
