// A worker is killed and does not come back: its requests go on with another worker, with the same tokens.

#include <csignal>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

constexpr int kTokens = 64;

v1::GenerateRequest Seeded(int number) {
  v1::GenerateRequest request =
      GreedyRequest(absl::StrCat("Once upon a time there was a fox with ", number, " friends"), kTokens);
  request.mutable_stopping()->set_ignore_eos(true);
  request.mutable_sampling()->set_temperature(0.8);
  request.mutable_sampling()->set_top_p(0.95);
  request.mutable_sampling()->set_seed(number);
  return request;
}

// Requests of every kind that keeps a state of its own: samples, beams, penalties, stop strings, logprobs.
std::vector<v1::GenerateRequest> AllKinds() {
  std::vector<v1::GenerateRequest> requests;
  for (int number = 1; number <= 3; ++number) requests.push_back(Seeded(number));
  requests.push_back(GreedyRequest("Once upon a time", kTokens));
  requests.back().mutable_stopping()->set_ignore_eos(true);
  requests.push_back(Seeded(4));
  requests.back().set_n(4);
  requests.push_back(Seeded(5));
  requests.back().mutable_sampling()->set_repetition_penalty(1.3F);
  requests.back().mutable_sampling()->set_presence_penalty(0.5F);
  requests.push_back(Seeded(6));
  requests.back().mutable_stopping()->add_stop_strings("the end of all things");
  requests.push_back(Seeded(7));
  requests.back().set_logprobs(2);
  requests.back().set_prompt_logprobs(2);
  requests.push_back(GreedyRequest("A small dog", kTokens));
  requests.back().mutable_beam()->set_width(4);
  requests.back().set_n(4);
  return requests;
}

void ExpectSame(const Generations& actual, const Generations& expected) {
  EXPECT_EQ(actual.status, absl::OkStatus());
  ASSERT_EQ(actual.samples.size(), expected.samples.size());
  for (size_t i = 0; i < expected.samples.size(); ++i) {
    EXPECT_EQ(actual.samples[i].token_ids, expected.samples[i].token_ids);
    EXPECT_EQ(actual.samples[i].text, expected.samples[i].text);
    EXPECT_EQ(actual.samples[i].logprobs, expected.samples[i].logprobs);  // Bit for bit.
  }
}

TEST(FailoverTest, StreamsOfAllKindsOutliveTheirWorker) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  const std::vector<v1::GenerateRequest> requests = AllKinds();
  std::vector<Generations> expected;
  for (const v1::GenerateRequest& request : requests) {
    expected.push_back(GenerateAll(cluster.client(), request));
    ASSERT_TRUE(expected.back().status.ok()) << expected.back().status;
  }
  for (int round = 0; round < 2; ++round) {
    std::vector<Generations> actual(requests.size());
    std::vector<std::thread> clients;
    for (size_t i = 0; i < requests.size(); ++i) {
      clients.emplace_back([&, i] {
        Client client(cluster.client_options());
        actual[i] = GenerateAll(client, requests[i]);
      });
    }
    // The kill comes when the worker has requests and has made some steps.
    const uint64_t first_step = cluster.client().GetStatus()->workers(round).steps();
    const auto has_begun = [&] {
      const auto status = cluster.client().GetStatus();
      return status->workers(round).running_requests() > 0 && status->workers(round).steps() > first_step + 5;
    };
    while (!has_begun()) std::this_thread::yield();
    cluster.worker(round).Signal(SIGKILL);
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(actual[i], expected[i]);
    cluster.worker(round).Wait();
    cluster.RestartWorker(round);
    ASSERT_TRUE(cluster.WaitUntilReady());
  }
}

}  // namespace
}  // namespace quire
