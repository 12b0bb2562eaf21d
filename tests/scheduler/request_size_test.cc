// SPDX-License-Identifier: Apache-2.0

#include "scheduler/request_size.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// A pool of 4 blocks of 4 tokens and a context of 20.
absl::Status Check(int prompt_length, int max_tokens) {
  SchedulerOptions options;
  options.max_context_tokens = 20;
  Request request;
  request.prompt.resize(prompt_length);
  request.max_tokens = max_tokens;
  return CheckCanEverFit(request, options, PagedBlockManager(4, 4));
}

TEST(RequestSizeTest, EmptyPromptIsInvalid) {
  EXPECT_EQ(Check(0, 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestSizeTest, AtLeastOneTokenMustBeAskedFor) {
  EXPECT_EQ(Check(1, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Check(1, -3).message(), HasSubstr("stopping.max_tokens: is -3"));
}

TEST(RequestSizeTest, LastTokenNeedsNoSlot) {
  EXPECT_EQ(Check(16, 1), absl::OkStatus());
  EXPECT_EQ(Check(9, 8), absl::OkStatus());
}

TEST(RequestSizeTest, RequestBeyondThePoolCanNeverFit) {
  const absl::Status status = Check(17, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("5 KV blocks of 4 tokens, the pool has 4"));
}

// 9 tokens take three blocks in group 0, and three sheets of two blocks in group 1.
TEST(RequestSizeTest, EachCacheGroupTakesBlocks) {
  const PagedBlockManager blocks({.num_blocks = 8,
                                  .block_size = 4,
                                  .groups = {{}, {.window_tokens = 6, .blocks_per_sheet = 2}},
                                  .max_slice_tokens = 8});
  Request request;
  request.prompt.resize(9);
  request.max_tokens = 1;
  const absl::Status status = CheckCanEverFit(request, SchedulerOptions(), blocks);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("9 KV blocks of 4 tokens in 2 cache groups, the pool has 8"));
  request.prompt.resize(8);
  EXPECT_EQ(CheckCanEverFit(request, SchedulerOptions(), blocks), absl::OkStatus());
}

TEST(RequestSizeTest, RequestBeyondTheContextIsInvalid) {
  const absl::Status status = Check(1, 20);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("together 21; the context has at most 20"));
  EXPECT_EQ(Check(5, std::numeric_limits<int>::max()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(RequestSizeTest, PromptWithoutOutputMayFillTheContext) {
  SchedulerOptions options;
  options.max_context_tokens = 8;
  Request request;
  request.max_tokens = 1;
  for (const bool is_prompt_only : {false, true}) {
    request.is_prompt_only = is_prompt_only;
    const int most = is_prompt_only ? 8 : 7;
    request.prompt.resize(most);
    EXPECT_EQ(CheckCanEverFit(request, options, PagedBlockManager(2, 4)), absl::OkStatus());
    request.prompt.resize(most + 1);
    EXPECT_THAT(CheckCanEverFit(request, options, PagedBlockManager(8, 4)).message(),
                HasSubstr("together 9; the context has at most 8"));
  }
}

}  // namespace
}  // namespace quire
