// SPDX-License-Identifier: Apache-2.0

// A model whose layers with a sliding window keep only what they still read, with the real programs.

#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

// In gemma3, the first layer sees 12 tokens and the second one all of them. The pool is too small for all requests at
// once, so some of them are preempted.
ClusterOptions OptionsWith(const std::string& cache_groups) {
  return {.model = GoldenModel("gemma3"),
          .worker_flags = {"--block-size=4", "--num-blocks=128", "--cache-groups=" + cache_groups}};
}

std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  std::mt19937 random(7);
  for (int i = 0; i < 16; ++i) {
    v1::GenerateRequest request = SeededRequest("", /*num_tokens=*/60, /*seed=*/i + 1);
    for (int length = 5 + 9 * i; length > 0; --length) request.mutable_token_ids()->add_ids(3 + random() % 90);
    request.set_logprobs(1);
    if (i % 4 == 1) request.mutable_sampling()->set_temperature(0);
    requests.push_back(request);
  }
  return requests;
}

const std::vector<Generation>& OfOneTable() {
  static const auto* const generations = [] {
    Cluster cluster(OptionsWith("one"));
    return new std::vector<Generation>(GenerateTogether(cluster.client(), Requests()));
  }();
  return *generations;
}

TEST(CacheGroupsTest, WindowsGiveTheTokensOfOneTable) {
  Cluster cluster(OptionsWith("windows"));
  ExpectSame(GenerateTogether(cluster.client(), Requests()), OfOneTable());
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

// The requests are computed again by the same worker, because a manager adopts no sequence with several tables.
TEST(CacheGroupsTest, StreamsSurviveTheirWorkerAndTheirManager) {
  const TestDirectory directory;
  directory.Write("key", std::string(40, 'k'));
  ClusterOptions options = OptionsWith("windows");
  options.manager_flags = {"--resume-key-file=" + directory.path() + "/key"};
  Cluster cluster(options);
  // RestartManager makes a new client, so the streams have one of their own.
  Client client(cluster.client_options());
  std::vector<v1::GenerateRequest> requests = Requests();
  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_on_disconnect(v1::ON_DISCONNECT_DETACH);
    requests[i].set_request_id("request-" + std::to_string(i));
  }
  std::vector<Generation> generations;
  std::thread clients([&] { generations = GenerateTogether(client, requests); });
  EXPECT_TRUE(WaitForSteps(cluster, 20));
  cluster.worker(0).Signal(SIGKILL);
  cluster.worker(0).Wait();
  cluster.RestartWorker(0);
  ASSERT_TRUE(cluster.WaitUntilReady());
  EXPECT_TRUE(WaitForSteps(cluster, 20));
  cluster.manager().Signal(SIGKILL);
  cluster.manager().Wait();
  cluster.RestartManager();
  clients.join();
  ExpectSame(generations, OfOneTable());
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

}  // namespace
}  // namespace quire
