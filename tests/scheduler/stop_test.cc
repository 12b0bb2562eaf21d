// SPDX-License-Identifier: Apache-2.0

#include "scheduler/stop.h"

#include <optional>

#include <gtest/gtest.h>

namespace quire {
namespace {

Request ThreeTokensOrStop7() {
  Request request;
  request.max_tokens = 3;
  request.stop_token_ids = {7};
  return request;
}

TEST(StopTest, SequenceGoesOnBelowTheLimit) {
  EXPECT_EQ(StopReason(ThreeTokensOrStop7(), 2, 5), std::nullopt);
}

TEST(StopTest, LimitEndsIt) {
  EXPECT_EQ(StopReason(ThreeTokensOrStop7(), 3, 5), FinishReason::kLength);
}

TEST(StopTest, StopTokenEndsItEvenAtTheLimit) {
  EXPECT_EQ(StopReason(ThreeTokensOrStop7(), 1, 7), FinishReason::kStopToken);
  EXPECT_EQ(StopReason(ThreeTokensOrStop7(), 3, 7), FinishReason::kStopToken);
}

}  // namespace
}  // namespace quire
