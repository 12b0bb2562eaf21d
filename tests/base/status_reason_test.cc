// SPDX-License-Identifier: Apache-2.0

#include "base/status_reason.h"

#include <gtest/gtest.h>

#include <optional>

#include "absl/status/status.h"

namespace quire {
namespace {

TEST(StatusReasonTest, AReasonKeepsItsNumbersAndTheStatusItsCode) {
  const absl::Status status =
      WithReason(absl::ResourceExhaustedError("full"), "QUEUE_FULL", {{"limit", "8"}, {"empty", ""}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "full");
  EXPECT_EQ(ReasonOf(status), (StatusReason{.word = "QUEUE_FULL", .metadata = {{"empty", ""}, {"limit", "8"}}}));
}

TEST(StatusReasonTest, TheLastReasonCounts) {
  const absl::Status first = WithReason(absl::NotFoundError("gone"), "FIRST", {{"a", "1"}});
  EXPECT_EQ(ReasonOf(WithReason(first, "SECOND")), (StatusReason{.word = "SECOND", .metadata = {}}));
}

TEST(StatusReasonTest, ReasonAndDelayAreIndependent) {
  const absl::Status plain = absl::UnavailableError("draining");
  EXPECT_EQ(ReasonOf(plain), std::nullopt);
  EXPECT_EQ(RetryDelayOf(plain), std::nullopt);
  const absl::Status delayed = WithRetryDelay(plain, 2500);
  EXPECT_EQ(ReasonOf(delayed), std::nullopt);
  EXPECT_EQ(RetryDelayOf(delayed), 2500);
  EXPECT_EQ(RetryDelayOf(WithReason(delayed, "DRAINING")), 2500);
}

}  // namespace
}  // namespace quire
