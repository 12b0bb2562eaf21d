// SPDX-License-Identifier: Apache-2.0

// The manager is killed, or stopped, and started again: its streams continue with what the workers have kept, with the
// same tokens.

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

constexpr int kTokensOfEach = 150;
const char* const kStory = "Once upon a time there was a fox who lived in a small house at the end of the forest with";

v1::GenerateRequest Seeded(int number) {
  v1::GenerateRequest request = SeededRequest(absl::StrCat(kStory, " ", number, " friends"), kTokensOfEach, number);
  request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  return request;
}

// Kinds of which the rows have everything: the next manager computes nothing again.
std::vector<v1::GenerateRequest> AdoptedKinds() {
  std::vector<v1::GenerateRequest> requests;
  for (int number = 1; number <= 4; ++number) requests.push_back(Seeded(number));
  requests.push_back(Seeded(5));
  requests.back().set_n(3);
  requests.push_back(Seeded(6));
  requests.back().mutable_sampling()->set_repetition_penalty(1.3F);
  requests.back().mutable_sampling()->set_presence_penalty(0.5F);
  requests.push_back(Seeded(7));
  requests.back().mutable_stopping()->add_stop("the end of all things");
  requests.push_back(Seeded(8));
  requests.back().set_echo(true);
  requests.push_back(Seeded(9));
  requests.back().set_bypass_prefix_cache(true);
  requests.push_back(Seeded(10));
  requests.back().set_cache_salt("salt\nwith a newline");
  return requests;
}

// Kinds that need more than tokens: logprobs, or the state of a search.
std::vector<v1::GenerateRequest> ScoredKinds() {
  std::vector<v1::GenerateRequest> requests;
  for (int number = 20; number < 25; ++number) requests.push_back(Seeded(number));
  requests[0].set_logprobs(2);
  requests[0].set_prompt_logprobs(1);
  requests[1].set_n(2);
  requests[1].set_best_of(3);
  requests[2].clear_sampling();
  requests[2].mutable_beam()->set_width(4);
  requests[2].mutable_beam()->set_num_return_sequences(2);
  requests[3].set_n(4);
  requests[3].set_logprobs(0);
  requests[4].clear_sampling();
  requests[4].mutable_beam()->set_width(4);
  requests[4].mutable_beam()->set_num_groups(2);
  requests[4].mutable_beam()->set_diversity_penalty(0.5F);
  requests[4].mutable_stopping()->set_ignore_eos(false);
  requests[4].set_logprobs(0);
  return requests;
}

void ExpectSameWithPrompts(const Generations& actual, const Generations& expected) {
  ExpectSame(actual, expected);
  for (size_t i = 0; i < std::min(actual.samples.size(), expected.samples.size()); ++i) {
    ExpectSamePromptLogprobs(actual.samples[i], expected.samples[i]);
  }
  EXPECT_EQ(actual.usage.completion_tokens(), expected.usage.completion_tokens());
}

class RestartTest : public ::testing::Test {
 protected:
  RestartTest() { std::ofstream(directory_ / "key") << std::string(40, 'k'); }

  ClusterOptions Options(int num_workers = 1) const {
    return {.model = BundledModel(),
            .num_workers = num_workers,
            .manager_flags = {absl::StrCat("--resume-key-file=", directory_ / "key")},
            .metrics_listen = "127.0.0.1:0"};
  }

  // Runs the requests, kills the manager when all of them have begun, or sends it another signal, and starts it again.
  static std::vector<Generations> RunAcrossARestart(Cluster* cluster, const std::vector<v1::GenerateRequest>& requests,
                                                    int signal = SIGKILL) {
    std::vector<Generations> actual(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] {
        Client client(cluster->client_options());
        v1::GenerateRequest request = requests[i];
        // With a name, a client can find its request before it has got a response.
        request.set_request_id(absl::StrCat("story-", cluster->manager().pid(), "-", i));
        actual[i] = GenerateAll(client, request);
      });
    }
    const auto num_running = [&] {
      size_t sum = 0;
      const auto status = cluster->client().GetStatus();
      if (!status.ok()) return sum;  // The channel may still belong to the killed manager.
      for (const auto& worker : status->workers()) sum += worker.running_requests();
      return sum;
    };
    while (num_running() < requests.size()) std::this_thread::yield();
    cluster->manager().Signal(signal);
    cluster->manager().Wait();
    const absl::Time start = absl::Now();
    cluster->RestartManager();
    const std::string line = cluster->manager().WaitForLine("of another manager");
    std::printf("%s after the restart: %s\n", absl::FormatDuration(absl::Now() - start).c_str(), line.c_str());
    for (std::thread& client : clients) client.join();
    return actual;
  }

  const TemporaryDirectory directory_;
};

// The programs and all that they know are gone; only the clients still have a part of each stream.
TEST_F(RestartTest, ClientsContinueTheirStreamsWhenNobodyKnowsThemAnyMore) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2, .metrics_listen = "127.0.0.1:0"});
  std::vector<v1::GenerateRequest> requests = AdoptedKinds();
  requests.push_back(Seeded(11));
  requests.back().set_logprobs(2);
  requests.back().set_prompt_logprobs(1);
  requests.push_back(Seeded(12));
  requests.back().mutable_stopping()->set_min_tokens(100);
  requests.back().mutable_stopping()->add_stop("the");
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) expected.push_back(GenerateAll(cluster.client(), request));
  std::vector<Generations> actual(requests.size());
  std::atomic<size_t> num_begun = 0;
  std::vector<std::thread> clients;
  for (size_t i = 0; i < requests.size(); ++i) {
    clients.emplace_back([&, i] {
      Client client(cluster.client_options());
      actual[i] = GenerateAll(client, requests[i], absl::Seconds(120), [&] { ++num_begun; });
    });
  }
  while (num_begun < requests.size()) std::this_thread::yield();
  cluster.manager().Signal(SIGKILL);
  for (int i = 0; i < 2; ++i) cluster.worker(i).Signal(SIGKILL);
  cluster.manager().Wait();
  for (int i = 0; i < 2; ++i) cluster.worker(i).Wait();
  cluster.RestartManager();
  for (int i = 0; i < 2; ++i) cluster.RestartWorker(i);
  for (std::thread& client : clients) client.join();
  uint32_t num_tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameWithPrompts(actual[i], expected[i]);
    EXPECT_EQ(actual[i].usage.prompt_tokens(), expected[i].usage.prompt_tokens());
    EXPECT_EQ(actual[i].samples[0].prompt_logprobs.size(), expected[i].samples[0].prompt_logprobs.size());
    num_tokens += actual[i].usage.completion_tokens();
  }
  const double num_drawn_now = cluster.ReadMetric("quire_generated_tokens_total");
  EXPECT_GT(num_drawn_now, 0);
  EXPECT_LT(num_drawn_now, num_tokens) << "the first tokens were not drawn again";
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST_F(RestartTest, StreamsContinueAndNothingIsComputedAgain) {
  Cluster cluster(Options());
  const std::vector<v1::GenerateRequest> requests = AdoptedKinds();
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) expected.push_back(GenerateAll(cluster.client(), request));
  const uint32_t num_cached = GenerateAll(cluster.client(), requests[0]).usage.cached_tokens();
  EXPECT_GT(num_cached, 16u);
  const std::vector<Generations> actual = RunAcrossARestart(&cluster, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameWithPrompts(actual[i], expected[i]);
  }
  EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  EXPECT_EQ(GenerateAll(cluster.client(), requests[0]).usage.cached_tokens(), num_cached)
      << "the prefix cache is as warm as before";
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST_F(RestartTest, StreamsWithLogprobsAndSearchesContinueAndNothingIsComputedAgain) {
  Cluster cluster(Options());
  const std::vector<v1::GenerateRequest> requests = ScoredKinds();
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) expected.push_back(GenerateAll(cluster.client(), request));
  for (int round = 0; round < 2; ++round) {
    const std::vector<Generations> actual = RunAcrossARestart(&cluster, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      SCOPED_TRACE(i);
      ExpectSameWithPrompts(actual[i], expected[i]);
    }
    // In the second round, the worker may still have the rows of a search that has ended, but not all of its blocks.
    // Such a search makes its last step again.
    if (round > 0) continue;
    EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  }
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST_F(RestartTest, StreamsContinueAgainAndAgain) {
  Cluster cluster(Options(/*num_workers=*/2));
  std::vector<v1::GenerateRequest> requests;
  for (int number = 1; number <= 8; ++number) requests.push_back(Seeded(number));
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) expected.push_back(GenerateAll(cluster.client(), request));
  for (int round = 0; round < 3; ++round) {
    const std::vector<Generations> actual = RunAcrossARestart(&cluster, requests);
    for (size_t i = 0; i < requests.size(); ++i) ExpectSameWithPrompts(actual[i], expected[i]);
    EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  }
}

// The first worker was silent while the request moved to the second one, so it still has rows of it. It comes to the
// next manager before the second one, and has no time to catch up, because its steps are slow.
TEST_F(RestartTest, OfTwoWorkersWithRowsOfARequestTheOneWhereItRanLastContinues) {
  std::ofstream(directory_ / "slow.yaml") << "step: 300ms\n";
  std::ofstream(directory_ / "fast.yaml") << "step: 5ms\n";
  ClusterOptions options = Options(/*num_workers=*/2);
  options.worker_flags = {"--device=simulated", "--orphan-hold=10m",
                          absl::StrCat("--simulated-step-times=", directory_ / "slow.yaml")};
  Cluster cluster(options);
  const auto wait_for_steps = [&](int worker, uint64_t num_steps) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (absl::Now() < deadline) {
      const auto status = cluster.client().GetStatus();
      if (status.ok() && status->workers(worker).steps() >= num_steps) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  };
  // The request begins while only the first worker is there.
  cluster.worker(1).Signal(SIGKILL);
  cluster.worker(1).Wait();
  const v1::GenerateRequest request = Seeded(1);
  Generations actual;
  std::thread reader([&] {
    Client client(cluster.client_options());
    v1::GenerateRequest named = request;
    named.set_request_id("story");
    actual = GenerateAll(client, named);
  });
  EXPECT_TRUE(wait_for_steps(/*worker=*/0, /*num_steps=*/2));
  cluster.RestartWorker(1, {absl::StrCat("--simulated-step-times=", directory_ / "fast.yaml")});
  EXPECT_TRUE(cluster.WaitUntilReady());
  cluster.worker(0).Signal(SIGSTOP);
  EXPECT_TRUE(wait_for_steps(/*worker=*/1, /*num_steps=*/50));
  cluster.worker(1).Signal(SIGSTOP);
  cluster.manager().Signal(SIGKILL);
  cluster.manager().Wait();
  cluster.RestartManager();
  for (const int worker : {0, 1}) {
    cluster.worker(worker).Signal(SIGCONT);
    const std::string line = cluster.manager().WaitForLine(
        absl::StrCat("worker ", cluster.worker_endpoint(worker), " had "), /*timeout_ms=*/60'000);
    EXPECT_NE(line.find("had 1 request of another manager: 1 continue, "), std::string::npos)
        << line << "\n"
        << cluster.manager().Output();
  }
  reader.join();
  EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  EXPECT_TRUE(cluster.WaitUntilIdle());
  cluster.worker(0).Signal(SIGKILL);
  cluster.worker(0).Wait();
  ExpectSameWithPrompts(actual, GenerateAll(cluster.client(), request));
}

// What has not ended at the drain timeout continues as after a kill.
TEST_F(RestartTest, StreamsThatADrainCutsOffContinue) {
  ClusterOptions options = Options();
  options.manager_flags.push_back("--drain-timeout=1ms");
  Cluster cluster(options);
  std::vector<v1::GenerateRequest> requests = ScoredKinds();
  for (int number = 1; number <= 4; ++number) requests.push_back(Seeded(number));
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) expected.push_back(GenerateAll(cluster.client(), request));
  const std::vector<Generations> actual = RunAcrossARestart(&cluster, requests, SIGTERM);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    ExpectSameWithPrompts(actual[i], expected[i]);
  }
  EXPECT_GT(cluster.ReadMetric("quire_restored_requests_total"), 0);
  EXPECT_EQ(cluster.ReadMetric("quire_recomputed_tokens_total"), 0);
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST_F(RestartTest, RequestsOfClientsThatDoNotResumeEndWithTheManager) {
  Cluster cluster(Options());
  v1::GenerateRequest request = Seeded(1);
  request.set_on_disconnect(v1::ON_DISCONNECT_ABORT);
  EXPECT_EQ(RunAcrossARestart(&cluster, {request})[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

}  // namespace
}  // namespace quire
