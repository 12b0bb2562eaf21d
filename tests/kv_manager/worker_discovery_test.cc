#include "kv_manager/worker_discovery.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(WorkerDiscoveryTest, PlainAddressesStandForThemselves) {
  EXPECT_THAT(*ResolveWorkers("host:1"), ElementsAre("host:1"));
  EXPECT_THAT(*ResolveWorkers("unix:/tmp/worker.sock"), ElementsAre("unix:/tmp/worker.sock"));
}

TEST(WorkerDiscoveryTest, ANameStandsForItsAddresses) {
  EXPECT_THAT(*ResolveWorkers("dns:///127.0.0.1:50061"), ElementsAre("127.0.0.1:50061"));
  EXPECT_THAT(*ResolveWorkers("dns:///localhost:50061"), Contains("127.0.0.1:50061"));
}

TEST(WorkerDiscoveryTest, ANameWithoutAPortIsRefused) {
  EXPECT_EQ(ResolveWorkers("dns:///workers").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveWorkers("dns:///:1").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveWorkers("dns:///workers:").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WorkerDiscoveryTest, FixedAddressesAreToldAtOnceAndInOrder) {
  std::vector<std::string> told;
  WorkerDiscovery discovery({"b:1", "a:1"}, absl::Hours(1), [&told](const std::string& a) { told.push_back(a); });
  EXPECT_THAT(told, ElementsAre("b:1", "a:1"));
}

}  // namespace
}  // namespace quire
