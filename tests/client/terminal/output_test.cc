// SPDX-License-Identifier: Apache-2.0

#include "client/terminal/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/library/client.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns the text of ReportError for gRPC's own UNAVAILABLE.
std::string SaidOf(const std::string& message, const std::string& endpoint = "host:1") {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, message)), endpoint),
            kExitUnavailable);
  return testing::internal::GetCapturedStderr();
}

TEST(ReportErrorTest, WhereNobodyListensItAsksForTheManager) {
  const std::string said = SaidOf(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: "
      "Connection refused");
  EXPECT_THAT(said, HasSubstr("no manager answers at host:1; is quire-manager running there?"));
  EXPECT_THAT(said, HasSubstr("remote host: Connection refused\n"));
  EXPECT_THAT(said, Not(HasSubstr("--tls")));
}

TEST(ReportErrorTest, AMissingSocketIsNamed) {
  const char* const message =
      "failed to connect to all addresses; last error: UNKNOWN: unix:/nope: No such file or directory";
  for (const char* endpoint : {"unix:/nope", "unix:///nope"}) {
    const std::string said = SaidOf(message, endpoint);
    EXPECT_THAT(said, HasSubstr(": there is no socket /nope; is quire-manager running there?"));
    EXPECT_THAT(said, Not(HasSubstr("--tls")));
    EXPECT_THAT(said, Not(HasSubstr("open")));
  }
}

TEST(ReportErrorTest, ASocketThatRefusesIsNotAnOpenPort) {
  for (const char* reason : {"Connection refused", "Permission denied"}) {
    const std::string said =
        SaidOf(std::string("failed to connect to all addresses; last error: UNKNOWN: unix:/run/quire.sock: ") + reason,
               "unix:/run/quire.sock");
    EXPECT_THAT(said, HasSubstr("no manager answers at unix:/run/quire.sock; is quire-manager running there?"));
    EXPECT_THAT(said, HasSubstr(reason));
    EXPECT_THAT(said, Not(HasSubstr("--tls")));
  }
}

TEST(ReportErrorTest, AMissingTokenIsAskedFor) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError(absl::UnauthenticatedError("the call has no bearer token"), "host:1"), kExitRejected);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no bearer token\n  give a token (--token, $QUIRE_TOKEN)"));
}

TEST(ReportErrorTest, WhereNoWorkerIsThereStatusSaysWhy) {
  google::rpc::ErrorInfo info;
  info.set_reason("NO_WORKER");
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "no worker has joined yet", details.SerializeAsString());
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError(FromGrpcStatus(status), "host:1"), kExitUnavailable);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "quirectl: unavailable: no worker has joined yet\n"
            "  `quirectl status` shows the workers, and why the manager cannot use one\n");
}

TEST(ReportErrorTest, ADeadlineMayMeanThatNoWorkerIsThere) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError(absl::DeadlineExceededError("Deadline Exceeded"), "host:1"), kExitUnavailable);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "quirectl: the manager at host:1 did not answer in time, or the request waited for a worker; `quirectl "
            "status` shows the workers\n  --timeout (generate) and --rpc-timeout (other commands) allow more time\n");
}

TEST(ReportErrorTest, AManagerInPlainTextIsTheReasonOfAFailedTlsHandshake) {
  const std::string said = SaidOf(
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Tls handshake failed: "
      "SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong version number");
  EXPECT_THAT(
      said, testing::StartsWith("quirectl: the manager at host:1 does not speak TLS, and with --tls-ca quirectl does"));
  EXPECT_THAT(said, HasSubstr("Leave out --tls-ca"));
  EXPECT_THAT(said, Not(HasSubstr("no manager answers")));
}

TEST(ReportErrorTest, WhereThePortIsOpenItShowsTheReasonAndTheFlagsOfTls) {
  for (const char* reason : {"UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed", "UNKNOWN: Failed parsing HTTP/2",
                             "UNKNOWN: ipv4:127.0.0.1:1: Ssl handshake failed: CERTIFICATE_VERIFY_FAILED"}) {
    const std::string said = SaidOf(std::string("failed to connect to all addresses; last error: ") + reason);
    EXPECT_THAT(said, HasSubstr(std::string("no manager answers at host:1, though the port is open: ") + reason));
    for (const char* hint : {"--tls-ca", "--tls-name", "--tls-cert", "`quirectl doctor`", "--endpoint"}) {
      EXPECT_THAT(said, HasSubstr(hint));
    }
  }
}

}  // namespace
}  // namespace quire
