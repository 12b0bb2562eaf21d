// SPDX-License-Identifier: Apache-2.0

// Two managers for one worker: the one that holds a lease in etcd leads, and the other takes over.

#include <stdlib.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/process.h"
#include "tests/e2e/two_managers.h"
#include "tests/test_paths.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLease = absl::Seconds(6);

class StandbyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (EtcdPath().empty()) GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
    char folder[] = "/tmp/quire-standby.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    etcd_ = std::make_unique<Etcd>(folder_);
    worker_ = std::make_unique<Process>(
        std::vector<std::string>{Binary("quire-worker"), absl::StrCat("--model=", BundledModel()), "--device=simulated",
                                 absl::StrCat("--listen=", WorkerAddress()), "--metrics-listen="});
    for (int i = 0; i < 2; ++i) StartManager(i);
  }
  void TearDown() override {
    for (std::unique_ptr<Process>& manager : managers_) manager.reset();
    worker_.reset();
    etcd_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::string WorkerAddress() const { return absl::StrCat("unix:", folder_, "/worker.sock"); }
  std::string Address(int i) const { return absl::StrCat("unix:", folder_, "/manager", i, ".sock"); }

  void StartManager(int i) {
    managers_[i] = std::make_unique<Process>(std::vector<std::string>{
        Binary("quire-manager"), absl::StrCat("--listen=", Address(i)), absl::StrCat("--workers=", WorkerAddress()),
        "--metrics-listen=", "--max-queue-wait=24h", "--standby=etcd", absl::StrCat("--etcd=", etcd_->address()),
        "--lease-duration=6s"});
    EXPECT_NE(managers_[i]->WaitForLine("listening on"), "") << managers_[i]->Output();
    clients_[i] = std::make_unique<Client>(ClientOptions{.endpoint = Address(i)});
  }

  Process& manager(int i) { return *managers_[i]; }
  Client& client(int i) { return *clients_[i]; }

  // Waits until a manager serves. Returns its number, or -1 if none of `numbers` does in time.
  int AwaitLeader(const std::vector<int>& numbers, absl::Duration timeout = absl::Seconds(60)) {
    const absl::Time end = absl::Now() + timeout;
    while (absl::Now() < end) {
      for (const int i : numbers) {
        const absl::StatusOr<bool> is_serving = client(i).IsServing("");
        if (is_serving.ok() && *is_serving) return i;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return -1;
  }

  static v1::GenerateRequest Request() {
    v1::GenerateRequest request = LongRequest("Once upon a time", 32);
    return request;
  }

  std::string folder_;
  std::unique_ptr<Etcd> etcd_;
  std::unique_ptr<Process> worker_;
  std::unique_ptr<Process> managers_[2];
  std::unique_ptr<Client> clients_[2];
};

TEST_F(StandbyTest, OneOfTwoManagersServesAndTheOtherNamesIt) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  const int standby = 1 - leader;
  EXPECT_EQ(Generate(client(leader), Request()).status, absl::OkStatus());
  EXPECT_NE(manager(standby).WaitForLine("standing by: the leader is " + Address(leader)), "");
  EXPECT_FALSE(*client(standby).IsServing(""));
  EXPECT_TRUE(*client(standby).IsServing("liveness"));
  const absl::Status refused = Generate(client(standby), Request()).status;
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("this manager stands by, the leader is at " + Address(leader)));
  EXPECT_EQ(client(standby).GetModel().status().code(), absl::StatusCode::kUnavailable);

  // quirectl takes both addresses, in any order.
  const std::string both = absl::StrCat("--endpoint=", Address(standby), ",", Address(leader));
  Process status({Binary("quirectl"), both, "status"});
  EXPECT_EQ(status.Wait(), 0) << status.Output();
  EXPECT_THAT(status.Output(), HasSubstr(WorkerAddress()));
  Process doctor({Binary("quirectl"), both, "doctor"});
  EXPECT_EQ(doctor.Wait(), 0) << doctor.Output();
  EXPECT_THAT(doctor.Output(), HasSubstr("this manager stands by, the leader is at " + Address(leader)));
  // An empty table alone would look like a service without workers.
  for (const char* format : {"text", "json"}) {
    for (const char* command : {"status", "top", "requests"}) {
      Process look({Binary("quirectl"), "--endpoint=" + Address(standby), absl::StrCat("--output=", format), command});
      EXPECT_EQ(look.Wait(), std::string(command) == "requests" ? 3 : 0);
      EXPECT_THAT(look.Output(), HasSubstr("this manager stands by, the leader is at " + Address(leader))) << command;
    }
  }
  Process half({Binary("quirectl"), "--endpoint=" + Address(standby), "doctor"});
  EXPECT_EQ(half.Wait(), 1) << half.Output();
  EXPECT_THAT(half.Output(), HasSubstr("none of the managers in --endpoint leads"));
}

TEST_F(StandbyTest, AWorkerOfALeaderRefusesAManagerThatWasNotElected) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  Process stranger({Binary("quire-manager"), absl::StrCat("--listen=unix:", folder_, "/stranger.sock"),
                    absl::StrCat("--workers=", WorkerAddress()), "--metrics-listen="});
  EXPECT_NE(stranger.WaitForLine("term is 0, it must be at least the greatest one seen"), "") << stranger.Output();
  EXPECT_EQ(Generate(client(leader), Request()).status, absl::OkStatus());
  EXPECT_THAT(manager(leader).Output(), Not(HasSubstr(" lost in epoch ")));
}

TEST_F(StandbyTest, TheStandbyTakesOverSoonAfterTheLeaderIsKilled) {
  int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  const std::vector<uint32_t> expected = Generate(client(leader), Request()).token_ids;
  for (int round = 0; round < 2; ++round) {
    manager(leader).Signal(SIGKILL);
    manager(leader).Wait();
    const absl::Time killed = absl::Now();
    const int next = 1 - leader;
    ASSERT_EQ(AwaitLeader({next}), next) << manager(next).Output();
    const absl::Duration gap = absl::Now() - killed;
    RecordProperty("takeover_ms", static_cast<int>(absl::ToInt64Milliseconds(gap)));
    // The rest is for a busy machine.
    EXPECT_LT(gap, kLease + absl::Seconds(2) + absl::Seconds(20));
    EXPECT_EQ(Generate(client(next), Request()).token_ids, expected);
    StartManager(leader);
    leader = next;
  }
}

TEST_F(StandbyTest, ALeaderThatStopsGivesTheLeaseAwayAtOnce) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  manager(leader).Signal(SIGTERM);
  EXPECT_EQ(manager(leader).Wait(), 0) << manager(leader).Output();
  EXPECT_THAT(manager(leader).Output(), HasSubstr("gave the lease back"));
  EXPECT_EQ(AwaitLeader({1 - leader}), 1 - leader);
}

TEST_F(StandbyTest, AStandbyStopsAtOnce) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  manager(1 - leader).Signal(SIGTERM);
  EXPECT_EQ(manager(1 - leader).Wait(), 0);
  EXPECT_THAT(manager(1 - leader).Output(), Not(HasSubstr("leads from now on")));
  EXPECT_EQ(Generate(client(leader), Request()).status, absl::OkStatus());
}

TEST_F(StandbyTest, ALeaderThatWasPausedForLongerThanTheLeaseExits) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  const int next = 1 - leader;
  const std::vector<uint32_t> expected = Generate(client(leader), Request()).token_ids;
  // A stream of at least four seconds, because a step of a simulated worker takes 10 ms.
  v1::GenerateRequest longer = Request();
  longer.mutable_stopping()->set_max_tokens(400);
  const std::unique_ptr<GenerateStream> stream = client(leader).Generate(longer, absl::Minutes(5));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  manager(leader).Signal(SIGSTOP);
  ASSERT_EQ(AwaitLeader({next}), next) << manager(next).Output();
  EXPECT_EQ(Generate(client(next), Request()).token_ids, expected);
  const uint64_t epoch = client(next).GetStatus()->workers(0).epoch();
  manager(leader).Signal(SIGCONT);
  EXPECT_EQ(manager(leader).Wait(), 3) << manager(leader).Output();
  EXPECT_THAT(manager(leader).Output(), HasSubstr("this manager leads no longer and exits with code 3"));
  // The new leader has not noticed anything.
  EXPECT_EQ(Generate(client(next), Request()).token_ids, expected);
  EXPECT_EQ(client(next).GetStatus()->workers(0).epoch(), epoch);
  EXPECT_THAT(manager(next).Output(), Not(HasSubstr(" lost in epoch ")));
}

TEST_F(StandbyTest, ALeaderThatCannotReachEtcdExits) {
  const int leader = AwaitLeader({0, 1});
  ASSERT_NE(leader, -1);
  etcd_->process().Signal(SIGSTOP);
  EXPECT_EQ(manager(leader).Wait(), 3) << manager(leader).Output();
  EXPECT_THAT(manager(leader).Output(), HasSubstr("the lease cannot be renewed: etcd, "));
  EXPECT_THAT(manager(1 - leader).Output(), Not(HasSubstr("leads from now on")));
  etcd_->process().Signal(SIGCONT);
  EXPECT_EQ(AwaitLeader({1 - leader}), 1 - leader) << manager(1 - leader).Output();
}

}  // namespace
}  // namespace quire
