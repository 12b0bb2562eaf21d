// SPDX-License-Identifier: Apache-2.0

#include "worker/stream_status.h"

#include <gtest/gtest.h>

#include <string>

#include "base/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire {
namespace {

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), status.error_code());
  EXPECT_EQ(details.message(), status.error_message());
  return details;
}

TEST(StreamStatusTest, AReasonBecomesAnErrorInfo) {
  const grpc::Status status = ToStreamStatus(WithReason(absl::AbortedError("gone"), "TAKEN", {{"epoch", "7"}}));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "gone");
  const google::rpc::Status details = DetailsOf(status);
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "TAKEN");
  EXPECT_EQ(info.domain(), "quire");
  EXPECT_EQ(info.metadata().at("epoch"), "7");
}

TEST(StreamStatusTest, OkHasNoDetails) {
  EXPECT_TRUE(ToStreamStatus(absl::OkStatus()).ok());
  EXPECT_EQ(ToStreamStatus(absl::OkStatus()).error_details(), "");
}

TEST(StreamStatusTest, MessagesArePrintableAndShort) {
  const std::string bytes = "bad \xff\n";
  EXPECT_EQ(ToStreamStatus(absl::InternalError(bytes)).error_message(), "bad \\xff\\n");
  const grpc::Status status = ToStreamStatus(WithReason(absl::InternalError(bytes + std::string(5000, 'x')), "WORD"));
  EXPECT_EQ(status.error_message().size(), 512u);
  EXPECT_EQ(DetailsOf(status).details_size(), 1);
}

TEST(StreamStatusTest, AReasonThatIsTooLargeIsLeftOut) {
  const grpc::Status status =
      ToStreamStatus(WithReason(absl::InternalError("x"), "HUGE", {{"key", std::string(5000, 'v')}}));
  EXPECT_LE(status.error_details().size(), 4096u);
  EXPECT_EQ(DetailsOf(status).details_size(), 0);
}

}  // namespace
}  // namespace quire
