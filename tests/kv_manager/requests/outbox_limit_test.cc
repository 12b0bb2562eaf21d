// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/outbox_limit.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

Request WithSamples(int num_samples, int num_logprobs = -1) {
  Request request;
  request.num_samples = num_samples;
  request.sampling.num_logprobs = num_logprobs;
  return request;
}

TEST(OutboxLimitTest, EachSampleMayHaveAsManyTokens) {
  EXPECT_EQ(OutboxLimit(100, WithSamples(1)), 100u);
  EXPECT_EQ(OutboxLimit(100, WithSamples(3)), 300u);
  Request search;
  search.beam = BeamParams{.width = 8, .num_return = 5};
  EXPECT_EQ(OutboxLimit(100, search), 500u);
}

TEST(OutboxLimitTest, TheSumIsBoundedByItsBytes) {
  EXPECT_EQ(OutboxLimit(4096, WithSamples(256)), kMaxOutboxBytes / 48u);
  EXPECT_EQ(OutboxLimit(4096, WithSamples(256, /*num_logprobs=*/20)), kMaxOutboxBytes / (48u + 20 * 8));
}

TEST(OutboxLimitTest, ASingleSampleHasWhatTheFlagSays) {
  EXPECT_EQ(OutboxLimit(1'000'000, WithSamples(1)), 1'000'000u);
  EXPECT_EQ(OutboxLimit(1'000'000, WithSamples(256)), 1'000'000u);
}

}  // namespace
}  // namespace quire
