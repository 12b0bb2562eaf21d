// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_discovery.h"

#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

std::vector<std::string> Resolved(const std::string& workers) {
  const auto addresses = ResolveWorkers(workers);
  EXPECT_TRUE(addresses.ok()) << workers << ": " << addresses.status();
  return addresses.ok() ? *addresses : std::vector<std::string>();
}

TEST(WorkerDiscoveryTest, PlainAddressesStandForThemselves) {
  EXPECT_THAT(Resolved("host:1"), ElementsAre("host:1"));
  EXPECT_THAT(Resolved("unix:/tmp/worker.sock"), ElementsAre("unix:/tmp/worker.sock"));
}

TEST(WorkerDiscoveryTest, ANameStandsForItsAddresses) {
  EXPECT_THAT(Resolved("dns:///127.0.0.1:50061"), ElementsAre("127.0.0.1:50061"));
  EXPECT_THAT(Resolved("dns:///localhost:50061"), Contains("127.0.0.1:50061")) << "/etc/hosts must name localhost";
}

TEST(WorkerDiscoveryTest, ANameWithoutAPortIsRefused) {
  EXPECT_EQ(ResolveWorkers("dns:///workers").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveWorkers("dns:///:1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveWorkers("dns:///workers:").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WorkerDiscoveryTest, FixedAddressesAreToldAtOnceAndInOrder) {
  std::vector<std::string> told;
  WorkerDiscovery discovery({"b:1", "a:1"}, absl::Hours(1), [&told](const auto& addresses) { told = addresses; });
  EXPECT_THAT(told, ElementsAre("b:1", "a:1"));
}

TEST(WorkerDiscoveryTest, NamesAreLookedUpAgainAndAgain) {
  std::atomic<int> looks{0};
  std::vector<std::string> told;
  {
    WorkerDiscovery discovery({"a:1", "dns:///127.0.0.1:2"}, absl::Microseconds(1), [&](const auto& addresses) {
      told = addresses;
      ++looks;
      looks.notify_all();
    });
    for (int seen = 0; seen < 3; seen = looks) looks.wait(seen);
  }
  EXPECT_THAT(told, ElementsAre("a:1", "127.0.0.1:2"));
}

}  // namespace
}  // namespace quire
