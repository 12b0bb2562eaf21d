// SPDX-License-Identifier: Apache-2.0

// The log never stops the service: here its reader stalls.

#include <csignal>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

// Each request has a line of about 200 bytes in the log, and the pipe takes 4 KiB.
constexpr int kNumRequests = 200;

// Runs requests until one of them fails.
void RunRequests(Cluster* cluster) {
  for (int i = 0; i < kNumRequests; ++i) {
    v1::GenerateRequest request = GreedyRequest("Once upon a time", 2);
    request.set_request_id(absl::StrCat("number-", i, "."));
    const Generation generation = Generate(cluster->client(), request, absl::Seconds(60));
    ASSERT_TRUE(generation.status.ok()) << "request " << i << ": " << generation.status;
  }
}

TEST(LogReaderTest, RequestsAreServedWhileTheReaderOfTheLogStallsAndTheirLinesComeLater) {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--log-requests"}});
  cluster.manager().StopReading();
  RunRequests(&cluster);
  cluster.manager().ResumeReading();
  EXPECT_NE(cluster.manager().WaitForLine(absl::StrCat("request number-", kNumRequests - 1, ". ended")), "");
  for (int i = 0; i < kNumRequests; ++i) {
    EXPECT_THAT(cluster.manager().Output(), ::testing::HasSubstr(absl::StrCat("request number-", i, ". ended")));
  }
}

TEST(LogReaderTest, SigtermEndsAManagerWhileTheReaderOfItsLogStalls) {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--log-requests"}});
  cluster.manager().StopReading();
  RunRequests(&cluster);
  cluster.manager().Signal(SIGTERM);
  EXPECT_EQ(cluster.manager().Wait(), 0);
}

}  // namespace
}  // namespace quire
