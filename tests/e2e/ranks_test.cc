// SPDX-License-Identifier: Apache-2.0

// One model on two ranks, with the real programs.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/process.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

// A model whose rows are long enough for slices that two ranks divide. The bundled model has none.
const std::string& ModelForRanks() {
  static const auto* const directory = [] {
    auto* const made = new TestDirectory();
    Process process({Binary("make_model"), absl::StrCat("--output=", made->path(), "/model"), "--family=qwen2",
                     "--dim=256", "--layers=2", "--heads=16", "--kv-heads=4", "--head-dim=64", "--ffn=1024",
                     "--vocab=512", "--context=1024"});
    EXPECT_EQ(process.Wait(), 0) << process.Output();
    return made;
  }();
  static const auto* const path = new std::string(directory->path() + "/model");
  return *path;
}

v1::GenerateRequest RequestOf(int number, int num_tokens) {
  v1::GenerateRequest request = LongRequest(absl::StrCat("Request ", number, " of those that share"), num_tokens);
  request.mutable_sampling()->set_seed(number);
  if (number % 2 == 1) request.mutable_sampling()->set_temperature(0.9F);
  if (number % 3 == 1) request.mutable_sampling()->set_top_p(0.9F);
  if (number % 4 == 2) request.mutable_sampling()->set_repetition_penalty(1.2F);
  request.set_logprobs(number % 3);
  if (number % 4 == 3) request.set_prompt_logprobs(1);
  return request;
}

std::vector<Generation> RunTogether(Client& client, int num_requests, int num_tokens) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < num_requests; ++i) requests.push_back(RequestOf(i, num_tokens));
  return GenerateTogether(client, requests);
}

const std::vector<Generation>& OfOneWorker(int num_requests, int num_tokens) {
  static std::map<int, std::vector<Generation>> known;
  std::vector<Generation>& generations = known[num_tokens];
  if (generations.empty()) {
    Cluster cluster({.model = ModelForRanks(), .worker_flags = {"--num-blocks=256"}});
    generations = RunTogether(cluster.client(), num_requests, num_tokens);
  }
  return generations;
}

ClusterOptions TwoRanks() {
  return {.model = ModelForRanks(), .worker_flags = {"--num-blocks=256", "--tp=2"}};
}

// Returns the process of a rank that the worker has started, or -1.
pid_t PidOfRank(const Process& worker, int rank) {
  std::ifstream children(absl::StrCat("/proc/", worker.pid(), "/task/", worker.pid(), "/children"));
  for (pid_t pid; children >> pid;) {
    const std::string command = ReadWholeFile(absl::StrCat("/proc/", pid, "/cmdline"));
    if (absl::StrContains(command, absl::StrCat("--rank=", rank))) return pid;
  }
  return -1;
}

bool HasUcx() {
  return std::ifstream(Binary("libquire_ucx.so")).good();
}

// Returns a port that is free on both loopback addresses.
int FreePort(const std::vector<std::string>& hosts) {
  for (int port = 20'000 + getpid() % 10'000;; ++port) {
    bool is_free = true;
    for (const std::string& host : hosts) {
      const int fd = socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<uint16_t>(port));
      inet_pton(AF_INET, host.c_str(), &address.sin_addr);
      is_free &= bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      close(fd);
    }
    if (is_free) return port;
  }
}

// Two ranks, each on a host of its own. The hosts are addresses of this machine.
class TwoHosts {
 public:
  TwoHosts() : hosts_({"127.0.0.1", "127.0.0.2"}), port_(FreePort(hosts_)) {
    Start();
    ClusterOptions options = TwoRanks();
    options.worker_flags = FlagsOf(0);
    options.worker_addresses = {AddressOf(0)};
    cluster_ = std::make_unique<Cluster>(options);
  }

  Cluster& cluster() { return *cluster_; }
  std::string AddressOf(int host) const { return absl::StrCat(hosts_[host], ":", port_); }
  // The second host. The first one is worker 0 of the cluster.
  Process& second() { return *second_; }
  void Start() {
    std::vector<std::string> command = {Binary("quire-worker"), absl::StrCat("--model=", ModelForRanks()),
                                        "--metrics-listen=", "--threads=1"};
    for (const std::string& flag : FlagsOf(1)) command.push_back(flag);
    second_ = std::make_unique<Process>(command);
  }

 private:
  std::vector<std::string> FlagsOf(int host) const {
    return {"--num-blocks=256",
            "--tp=2",
            absl::StrCat("--tp-hosts=", AddressOf(0), ",", AddressOf(1)),
            absl::StrCat("--tp-host=", host),
            "--tp-network=lo",
            absl::StrCat("--listen=", AddressOf(host))};
  }

  const std::vector<std::string> hosts_;
  const int port_;
  std::unique_ptr<Process> second_;
  std::unique_ptr<Cluster> cluster_;
};

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasUcx()) GTEST_SKIP() << "the programs were built without UCX";
  }
};

constexpr int kRequests = 6;
constexpr int kTokens = 150;  // Of requests that a fault meets.

TEST_F(RanksTest, TwoRanksGiveTheTokensOfOneWorker) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, 40);
  Cluster cluster(TwoRanks());
  const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->workers_size(), 1);
  EXPECT_TRUE(absl::StartsWith(status->workers(0).device(), "2 x cpu")) << status->workers(0).device();
  ExpectSame(RunTogether(cluster.client(), kRequests, 40), expected);
  cluster.worker(0).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).Wait(), 0) << cluster.worker(0).Output();
}

TEST_F(RanksTest, StreamsContinueWithTheSameTokensAfterARankWasKilled) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, kTokens);
  Cluster cluster(TwoRanks());
  for (const int victim : {1, 0}) {
    SCOPED_TRACE(absl::StrCat("rank ", victim));
    const pid_t other = PidOfRank(cluster.worker(0), 1 - victim);
    const uint64_t first_step = cluster.client().GetStatus()->workers(0).steps();
    std::vector<Generation> actual;
    std::thread clients([&] { actual = RunTogether(cluster.client(), kRequests, kTokens); });
    EXPECT_TRUE(WaitForSteps(cluster, first_step + 20));
    const pid_t pid = PidOfRank(cluster.worker(0), victim);
    ASSERT_GT(pid, 0) << cluster.worker(0).Output();
    kill(pid, SIGKILL);
    clients.join();
    ExpectSame(actual, expected);
    EXPECT_NE(PidOfRank(cluster.worker(0), victim), pid);
    EXPECT_EQ(PidOfRank(cluster.worker(0), 1 - victim), other) << "the other rank keeps its weights";
  }
}

// The manager would wait for the whole --step-timeout, which is a minute.
TEST_F(RanksTest, OtherRanksNoticeARankThatWasStopped) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, kTokens);
  Cluster cluster(TwoRanks());
  std::vector<Generation> actual;
  std::thread clients([&] { actual = RunTogether(cluster.client(), kRequests, kTokens); });
  EXPECT_TRUE(WaitForSteps(cluster, 20));
  const pid_t pid = PidOfRank(cluster.worker(0), 1);
  ASSERT_GT(pid, 0) << cluster.worker(0).Output();
  const auto start = std::chrono::steady_clock::now();
  kill(pid, SIGSTOP);
  EXPECT_NE(cluster.worker(0).WaitForLine("rank 1 has been silent for a second"), "") << cluster.worker(0).Output();
  const std::chrono::duration<double> noticed = std::chrono::steady_clock::now() - start;
  RecordProperty("noticed_after_seconds", std::to_string(noticed.count()));
  EXPECT_LT(noticed.count(), 10) << "1.2 s where the machine is not busy";
  kill(pid, SIGCONT);
  clients.join();
  ExpectSame(actual, expected);
}

// Both ranks have kept the same rows and blocks, whatever they had got when the manager was killed.
TEST_F(RanksTest, NextManagerAdoptsWhatTheRanksHaveKept) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, kTokens);
  const TestDirectory directory;
  directory.Write("key", std::string(40, 'k'));
  ClusterOptions options = TwoRanks();
  options.manager_flags = {absl::StrCat("--resume-key-file=", directory.path(), "/key")};
  Cluster cluster(options);
  std::vector<Generation> actual(kRequests);
  std::vector<std::thread> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.emplace_back([&, i] {
      Client client(cluster.client_options());
      v1::GenerateRequest request = RequestOf(i, kTokens);
      request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
      request.set_request_id(absl::StrCat("request-", i));
      actual[i] = Generate(client, request);
    });
  }
  EXPECT_TRUE(WaitForSteps(cluster, 20));
  cluster.manager().Signal(SIGKILL);
  cluster.manager().Wait();
  cluster.RestartManager();
  // The last requests may not have reached a worker yet.
  const std::string adopted = cluster.worker(0).WaitForLine("it adopts ");
  EXPECT_NE(adopted, "") << cluster.worker(0).Output();
  EXPECT_FALSE(absl::StrContains(adopted, "it adopts 0 rows")) << adopted;
  for (std::thread& client : clients) client.join();
  ExpectSame(actual, expected);
}

TEST_F(RanksTest, RanksOnTwoHostsGiveTheTokensOfOneWorker) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, 40);
  TwoHosts hosts;
  ExpectSame(RunTogether(hosts.cluster().client(), kRequests, 40), expected);
  const absl::StatusOr<v1::GetStatusResponse> status = hosts.cluster().client().GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_EQ(status->workers(0).ranks_size(), 2);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(status->workers(0).ranks(rank).address(), hosts.AddressOf(rank));
    EXPECT_EQ(status->workers(0).ranks(rank).state(), v1::WORKER_STATE_READY);
  }
  EXPECT_EQ(PidOfRank(hosts.second(), 0), -1);
  EXPECT_GT(PidOfRank(hosts.second(), 1), 0);
  hosts.second().Signal(SIGTERM);
  EXPECT_EQ(hosts.second().Wait(), 0) << hosts.second().Output();
}

TEST_F(RanksTest, StreamsContinueWithTheSameTokensAfterAHostWasLost) {
  const std::vector<Generation>& expected = OfOneWorker(kRequests, kTokens);
  TwoHosts hosts;
  const pid_t other = PidOfRank(hosts.cluster().worker(0), 0);
  std::vector<Generation> actual;
  std::thread clients([&] { actual = RunTogether(hosts.cluster().client(), kRequests, kTokens); });
  EXPECT_TRUE(WaitForSteps(hosts.cluster(), 20));
  hosts.second().Signal(SIGKILL);  // Its rank ends with it.
  hosts.second().Wait();
  hosts.Start();
  clients.join();
  ExpectSame(actual, expected);
  EXPECT_EQ(PidOfRank(hosts.cluster().worker(0), 0), other) << "the other rank keeps its weights";
}

TEST_F(RanksTest, SimulatedRanksServe) {
  ClusterOptions options = TwoRanks();
  options.worker_flags.insert(options.worker_flags.end(), {"--device=simulated", "--simulated-step-times=0"});
  Cluster cluster(options);
  ClusterOptions one = options;
  one.worker_flags = {"--num-blocks=256", "--device=simulated", "--simulated-step-times=0"};
  Cluster alone(one);
  ExpectSame(RunTogether(cluster.client(), kRequests, 40), RunTogether(alone.client(), kRequests, 40));
}

TEST_F(RanksTest, ModelThatRanksDoNotDivideIsRefused) {
  const TestDirectory directory;
  Process worker({Binary("quire-worker"), absl::StrCat("--model=", BundledModel()), "--tp=8",
                  absl::StrCat("--listen=unix:", directory.path(), "/worker.sock"), "--metrics-listen="});
  EXPECT_EQ(worker.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(worker.Output(), "ranks")) << worker.Output();
}

}  // namespace
}  // namespace quire
