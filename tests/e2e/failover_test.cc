// SPDX-License-Identifier: Apache-2.0

// A worker is killed and does not come back: its requests continue with another worker, with the same tokens.

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int kTokensOfEach = 64;

v1::GenerateRequest Seeded(int number) {
  return SeededRequest(absl::StrCat("Once upon a time there was a fox with ", number, " friends"), kTokensOfEach,
                       number);
}

// Requests of every kind that keeps a state of its own: samples, beams, penalties, stop strings, logprobs.
std::vector<v1::GenerateRequest> AllKinds() {
  std::vector<v1::GenerateRequest> requests;
  for (int number = 1; number <= 3; ++number) requests.push_back(Seeded(number));
  requests.push_back(LongRequest("Once upon a time", kTokensOfEach));
  requests.push_back(Seeded(4));
  requests.back().set_n(4);
  requests.push_back(Seeded(5));
  requests.back().mutable_sampling()->set_repetition_penalty(1.3F);
  requests.back().mutable_sampling()->set_presence_penalty(0.5F);
  requests.push_back(Seeded(6));
  requests.back().mutable_sampling()->set_xtc_probability(0.5F);
  requests.back().mutable_stopping()->add_stop("the end of all things");
  requests.push_back(Seeded(7));
  requests.back().set_logprobs(2);
  requests.back().set_prompt_logprobs(2);
  requests.push_back(GreedyRequest("A small dog", kTokensOfEach));
  requests.back().mutable_beam()->set_width(4);
  requests.back().mutable_beam()->set_num_return_sequences(4);
  return requests;
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
    // The kill comes when the worker has made some steps.
    const uint64_t first_step = cluster.client().GetStatus()->workers(round).steps();
    while (cluster.client().GetStatus()->workers(round).steps() <= first_step + 5) std::this_thread::yield();
    cluster.worker(round).Signal(SIGKILL);
    for (std::thread& client : clients) client.join();
    for (size_t i = 0; i < requests.size(); ++i) ExpectSame(actual[i], expected[i]);
    cluster.worker(round).Wait();
    cluster.RestartWorker(round);
    ASSERT_TRUE(cluster.WaitUntilReady());
  }
}

// The request runs on worker 1, which is lost, and continues with worker 0.
TEST(FailoverTest, AnApproximateStreamContinuesWithOtherKernelsAndSaysFromWhere) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2, .manager_flags = {"--failover=approximate"}});
  cluster.worker(1).Signal(SIGTERM);
  cluster.worker(1).Wait();
  cluster.RestartWorker(1, {"--cpu-kernels=generic"});
  ASSERT_TRUE(cluster.WaitUntilReady());
  const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
  if (status->workers(0).numerics_fingerprint() == status->workers(1).numerics_fingerprint()) {
    GTEST_SKIP() << "this machine has generic kernels only";
  }
  ASSERT_EQ(status->generation(), status->workers(1).generation()) << "new requests go to the worker that joined last";
  v1::GenerateRequest request = LongRequest("Once upon a time there was a fox", 400);
  const Generation undisturbed = Generate(cluster.client(), request);
  ASSERT_TRUE(undisturbed.status.ok()) << undisturbed.status;

  Ended printed;
  std::thread quirectl([&] {
    printed = Quirectl(cluster.endpoint(), {"generate", request.text(), "-t", "0", "-n", "400", "--ignore-eos"});
  });
  Generations actual;
  std::thread client([&] { actual = GenerateAll(cluster.client(), request); });
  while (cluster.client().GetStatus()->workers(1).running_requests() < 2) std::this_thread::yield();
  const uint64_t first_step = cluster.client().GetStatus()->workers(1).steps();
  while (cluster.client().GetStatus()->workers(1).steps() <= first_step + 5) std::this_thread::yield();
  cluster.worker(1).Signal(SIGKILL);
  client.join();
  quirectl.join();
  EXPECT_EQ(printed.exit_code, 0) << printed.output;
  EXPECT_THAT(printed.output, HasSubstr("come from a worker with other numerics"));

  ASSERT_TRUE(actual.status.ok()) << actual.status;
  ASSERT_EQ(actual.samples[0].token_ids.size(), 400u);
  ASSERT_TRUE(actual.samples[0].numerics_changed_at.has_value());
  const std::vector<uint32_t>& tokens = actual.samples[0].token_ids;
  const auto cut = tokens.begin() + *actual.samples[0].numerics_changed_at - actual.usage.prompt_tokens();
  ASSERT_GE(cut, tokens.begin());
  ASSERT_LT(cut, tokens.end());
  EXPECT_EQ(
      std::vector<uint32_t>(tokens.begin(), cut),
      std::vector<uint32_t>(undisturbed.token_ids.begin(), undisturbed.token_ids.begin() + (cut - tokens.begin())));
  // What follows is what worker 0 makes of the first part.
  v1::TokenizeRequest prompt;
  prompt.set_text(request.text());
  v1::GenerateRequest rest = LongRequest("", static_cast<int>(tokens.end() - cut));
  *rest.mutable_token_ids()->mutable_ids() = cluster.client().Tokenize(prompt)->token_ids();
  for (auto token = tokens.begin(); token != cut; ++token) rest.mutable_token_ids()->add_ids(*token);
  EXPECT_EQ(Generate(cluster.client(), rest).token_ids, std::vector<uint32_t>(cut, tokens.end()));
}

// 64 streams with their own clients, all on worker 0.
class MovingStreams {
 public:
  static constexpr int kStreams = 64;

  explicit MovingStreams(Cluster* cluster) : cluster_(cluster), expected_(kStreams), actual_(kStreams) {
    Start(&expected_);
    Join();
  }

  void StartOnFirstWorker() {
    ASSERT_TRUE(cluster_->client().Drain(cluster_->worker_endpoint(1)).ok());
    Start(&actual_);
    // On a busy machine a stream may have ended before the last one has begun.
    while (num_done_ == 0 && cluster_->client().GetStatus()->workers(0).running_requests() < kStreams) {
      std::this_thread::yield();
    }
    ASSERT_TRUE(cluster_->client().Undrain(cluster_->worker_endpoint(1)).ok());
  }

  void ExpectSameTokens() {
    Join();
    for (int i = 0; i < kStreams; ++i) ExpectSame(actual_[i], expected_[i]);
  }

 private:
  void Start(std::vector<Generations>* results) {
    num_done_ = 0;
    for (int i = 0; i < kStreams; ++i) {
      clients_.emplace_back([this, i, results] {
        v1::GenerateRequest request = Seeded(i);
        request.mutable_stopping()->set_max_tokens(kLong);
        Client client(cluster_->client_options());
        (*results)[i] = GenerateAll(client, request);
        ++num_done_;
      });
    }
  }
  void Join() {
    for (std::thread& client : clients_) client.join();
    clients_.clear();
  }

  static constexpr int kLong = 180;
  Cluster* const cluster_;
  std::vector<Generations> expected_;
  std::vector<Generations> actual_;
  std::vector<std::thread> clients_;
  std::atomic<int> num_done_ = 0;
};

TEST(FailoverTest, ADrainMovesAllStreamsWithTheirTokens) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  MovingStreams streams(&cluster);
  {
    const uint64_t first_step = cluster.client().GetStatus()->workers(1).steps();
    streams.StartOnFirstWorker();
    const absl::Time start = absl::Now();
    const auto left = [&] {
      return cluster.client().Drain(cluster.worker_endpoint(0), /*migrates=*/true)->num_requests();
    };
    while (left() > 0) std::this_thread::yield();
    std::printf("%d streams have left after %s\n", MovingStreams::kStreams,
                absl::FormatDuration(absl::Now() - start).c_str());
    streams.ExpectSameTokens();
    EXPECT_GT(cluster.client().GetStatus()->workers(1).steps(), first_step) << "they continued with the other worker";
    ASSERT_TRUE(cluster.client().Undrain(cluster.worker_endpoint(0)).ok());
  }
  {
    const uint64_t first_step = cluster.client().GetStatus()->workers(1).steps();
    streams.StartOnFirstWorker();
    const absl::Time start = absl::Now();
    cluster.worker(0).Signal(SIGTERM);
    EXPECT_EQ(cluster.worker(0).Wait(), 0);
    std::printf("the worker has ended after %s\n", absl::FormatDuration(absl::Now() - start).c_str());
    streams.ExpectSameTokens();
    EXPECT_GT(cluster.client().GetStatus()->workers(1).steps(), first_step) << "they continued with the other worker";
  }
}

TEST(FailoverTest, AWorkerWhoseProcessIsStoppedIsNoticedAndNothingOfItIsAcceptedLater) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  MovingStreams streams(&cluster);
  streams.StartOnFirstWorker();
  const uint64_t epoch = cluster.client().GetStatus()->workers(0).epoch();
  const absl::Time start = absl::Now();
  cluster.worker(0).Signal(SIGSTOP);
  ASSERT_NE(cluster.manager().WaitForLine("has not answered for 1000 ms"), "") << cluster.manager().Output();
  std::printf("the manager has noticed it after %s\n", absl::FormatDuration(absl::Now() - start).c_str());
  cluster.worker(0).Signal(SIGCONT);
  streams.ExpectSameTokens();
  const auto is_back = [&] {
    const auto status = cluster.client().GetStatus();
    return status->workers(0).state() == v1::WORKER_STATE_READY && status->workers(0).epoch() > epoch;
  };
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!is_back() && absl::Now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(is_back());
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

}  // namespace
}  // namespace quire
