// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/rpc/rpc_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "kv_manager/rpc/grpc_status.h"

namespace quire {
namespace {

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

template <typename Message>
Message Detail(const grpc::Status& status) {
  Message message;
  const google::rpc::Status details = Details(status);
  for (const auto& any : details.details()) {
    if (any.Is<Message>()) {
      any.UnpackTo(&message);
      return message;
    }
  }
  ADD_FAILURE() << "no " << Message::descriptor()->full_name();
  return message;
}

TEST(RpcStatusTest, FieldErrorsTravelAsBadRequest) {
  FieldErrors errors;
  errors.Add("sampling.top_p", "is 0, must be in (0, 1]");
  errors.Add("stopping.stop[2]", "is empty");
  const grpc::Status status = ToGrpcStatus(errors.ToStatus());

  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "sampling.top_p: is 0, must be in (0, 1] (and 1 more error)");
  EXPECT_EQ(Details(status).code(), 3);
  EXPECT_EQ(Details(status).message(), status.error_message());
  const auto bad_request = Detail<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad_request.field_violations_size(), 2);
  EXPECT_EQ(bad_request.field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad_request.field_violations(1).field(), "stopping.stop[2]");
  EXPECT_EQ(bad_request.field_violations(1).description(), "is empty");
}

TEST(RpcStatusTest, ReasonCarriesNumbers) {
  const absl::Status status = WithReason(absl::ResourceExhaustedError("too slow"), "SLOW_READER", {{"limit", "4096"}});
  const auto info = Detail<google::rpc::ErrorInfo>(ToGrpcStatus(status));
  EXPECT_EQ(info.reason(), "SLOW_READER");
  EXPECT_EQ(info.domain(), "quire");
  EXPECT_EQ(info.metadata().at("limit"), "4096");
}

TEST(RpcStatusTest, RetryDelayTravelsAsRetryInfo) {
  const absl::Status status = WithRetryDelay(absl::UnavailableError("draining"), 2500);
  const auto retry = Detail<google::rpc::RetryInfo>(ToGrpcStatus(status));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500000000);
  EXPECT_EQ(RetryDelayMs(status), 2500);
}

TEST(RpcStatusTest, StatusWithoutReasonGetsThatOfItsCode) {
  struct Case {
    absl::Status status;
    const char* reason;
    bool is_retryable;
  };
  for (const Case& c : {Case{absl::ResourceExhaustedError("x"), "QUEUE_FULL", true},
                        Case{absl::UnavailableError("x"), "NO_WORKER", true},
                        Case{absl::FailedPreconditionError("x"), "NEVER_FITS", false},
                        Case{absl::DeadlineExceededError("x"), "DEADLINE_EXCEEDED", false},
                        Case{absl::InternalError("x"), "INTERNAL", false}}) {
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(ToGrpcStatus(c.status)).reason(), c.reason);
    EXPECT_EQ(RetryDelayMs(c.status).has_value(), c.is_retryable) << c.reason;
  }
}

TEST(RpcStatusTest, GivenReasonIsNotMadeRetryable) {
  EXPECT_EQ(RetryDelayMs(WithReason(absl::ResourceExhaustedError("x"), "SLOW_READER")), std::nullopt);
}

TEST(RpcStatusTest, OkHasNoDetails) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_EQ(ToGrpcStatus(absl::OkStatus()).error_details(), "");
}

TEST(RpcStatusTest, ManyLongErrorsStayWithinTheTrailerLimit) {
  FieldErrors errors;
  for (int i = 0; i < 100; ++i) errors.Add(absl::StrCat("field", std::string(300, 'f')), std::string(5000, '\xff'));
  const grpc::Status status = ToGrpcStatus(WithReason(errors.ToStatus(), "MANY"));
  EXPECT_LE(status.error_message().size(), 512u);
  EXPECT_LE(status.error_details().size(), 4096u);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status).field_violations_size(), 16);
  EXPECT_THAT(status.error_message(), ::testing::EndsWith("(and 99 more errors)"));
}

TEST(RpcStatusTest, TheFirstErrorMayBeLong) {
  FieldErrors errors;
  const std::string advice(384, 'a');
  errors.Add("first", advice);
  errors.Add("second", advice);
  const auto bad_request = Detail<google::rpc::BadRequest>(ToGrpcStatus(errors.ToStatus()));
  EXPECT_EQ(bad_request.field_violations(0).description(), advice);
  EXPECT_EQ(bad_request.field_violations(1).description(), std::string(125, 'a') + "...");
}

TEST(RpcStatusTest, OversizeDetailIsLeftOutAndTheRestStays) {
  const absl::Status status =
      WithRetryDelay(WithReason(absl::UnavailableError("x"), "HUGE", {{"key", std::string(5000, 'v')}}), 100);
  const grpc::Status wire = ToGrpcStatus(status);
  EXPECT_LE(wire.error_details().size(), 4096u);
  EXPECT_EQ(Details(wire).details_size(), 1);
  EXPECT_EQ(Detail<google::rpc::RetryInfo>(wire).retry_delay().nanos(), 100000000);
}

TEST(RpcStatusTest, MessageIsPrintableAscii) {
  EXPECT_EQ(ToGrpcStatus(absl::InternalError("bad \xff\n")).error_message(), "bad \\xff\\n");
}

TEST(RpcStatusTest, QuotedValuesAreEscapedAndShort) {
  EXPECT_EQ(Quoted("a\"\n\xff"), "\"a\\\"\\n\\xff\"");
  EXPECT_EQ(Quoted(std::string(65, 'a')), "\"" + std::string(64, 'a') + "\"...");
}

}  // namespace
}  // namespace quire
