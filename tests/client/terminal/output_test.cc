#include "client/terminal/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/library/client.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Returns the text of ReportError for gRPC's own UNAVAILABLE.
std::string SaidOf(const std::string& message) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(ReportError(FromGrpcStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE, message)), "host:1"),
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
