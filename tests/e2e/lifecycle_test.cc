// SPDX-License-Identifier: Apache-2.0

// Blocks are freed after a client is killed, after cancellations and after a worker's death.

#include <atomic>
#include <csignal>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

v1::WorkerStatus OnlyWorker(Client& client) {
  const absl::StatusOr<v1::GetStatusResponse> status = client.GetStatus();
  QUIRE_CHECK(status.ok()) << status.status();
  return status->workers(0);
}

TEST(LifecycleTest, AProgramThatCannotRunSaysSo) {
  Process program({"/nowhere/quire-manager"});
  EXPECT_EQ(program.WaitForLine("cannot run"), "cannot run /nowhere/quire-manager: No such file or directory");
}

TEST(LifecycleTest, AKilledClientGivesItsBlocksBack) {
  Cluster cluster({.model = BundledModel()});
  Process client({Binary("quirectl"), "--endpoint", cluster.endpoint(), "generate", "Once upon a time", "-o", "json",
                  "--max-tokens=900", "--ignore-eos", "--no-resume"});
  ASSERT_NE(client.WaitForLine("text_delta"), "") << client.Output();
  EXPECT_GT(OnlyWorker(cluster.client()).blocks().used(), 0u);
  client.Signal(SIGKILL);
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST(LifecycleTest, TenThousandRequestsHalfCancelledLeaveNoUsedBlock) {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--max-waiting-requests=4096"}});
  const int num_requests = 10'000;
  const int num_threads = 32;
  std::atomic<int> next{0};
  std::atomic<int> finished{0};
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t) {
    threads.emplace_back([&] {
      for (int i = next++; i < num_requests; i = next++) {
        std::mt19937 random(static_cast<uint32_t>(i));
        v1::GenerateRequest request = LongRequest("One day", 1 + static_cast<int>(random() % 8));
        const bool is_cancelled = random() % 2 == 0;
        // A cancelled stream is dropped after this many responses; 0 means before the first.
        const int num_reads = is_cancelled ? static_cast<int>(random() % 3) : 1'000'000;
        const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
        v1::GenerateResponse response;
        int reads = 0;
        while (reads < num_reads && stream->Next(&response)) ++reads;
        if (is_cancelled) {
          stream->Cancel();
          ++cancelled;
        } else {
          EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
          ++finished;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(cancelled, num_requests / 3);
  EXPECT_GT(finished, num_requests / 3);
  EXPECT_TRUE(cluster.WaitUntilIdle());
  const v1::WorkerStatus worker = OnlyWorker(cluster.client());
  EXPECT_EQ(worker.blocks().used(), 0u);
  EXPECT_EQ(worker.blocks().free(), worker.blocks().total());
}

// The second time the worker comes back with another pool and another block size.
TEST(LifecycleTest, AStreamContinuesWithTheSameTokensAfterItsWorkerWasKilledAndStartedAgain) {
  Cluster cluster({.model = BundledModel()});
  v1::GenerateRequest request = LongRequest("Once upon a time", 700);
  const Generation calm = Generate(cluster.client(), request);
  ASSERT_TRUE(calm.status.ok()) << calm.status;

  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
  std::vector<uint32_t> tokens;
  v1::GenerateResponse response;
  size_t num_kills = 0;
  while (stream->Next(&response)) {
    tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
    if (num_kills == 2 || tokens.size() <= 20 + 100 * num_kills) continue;
    cluster.worker(0).Signal(SIGKILL);
    cluster.worker(0).Wait();
    cluster.RestartWorker(0, num_kills == 0 ? std::vector<std::string>()
                                            : std::vector<std::string>{"--block-size=8", "--num-blocks=130"});
    ++num_kills;
  }
  EXPECT_EQ(num_kills, 2u);
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(tokens, calm.token_ids);
}

TEST(LifecycleTest, AWorkerThatIsPausedKeepsItsSessionAndItsStreams) {
  Cluster cluster({.model = BundledModel()});
  v1::GenerateRequest request = LongRequest("Once upon a time", 300);
  const Generation calm = Generate(cluster.client(), request);
  ASSERT_TRUE(calm.status.ok()) << calm.status;
  const uint64_t epoch = OnlyWorker(cluster.client()).epoch();

  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  std::vector<uint32_t> tokens(response.token_ids().begin(), response.token_ids().end());
  cluster.worker(0).Signal(SIGSTOP);
  // The worker is paused for a second, in which another request waits in vain.
  const Generation late = Generate(cluster.client(), GreedyRequest("One day", 4), absl::Seconds(1));
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded) << late.status;
  cluster.worker(0).Signal(SIGCONT);
  while (stream->Next(&response)) {
    tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
  }
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(tokens, calm.token_ids);
  EXPECT_EQ(OnlyWorker(cluster.client()).epoch(), epoch);
}

TEST(LifecycleTest, ARequestThatComesWhileTheOnlyWorkerIsLostWaitsForIt) {
  Cluster cluster({.model = BundledModel()});
  cluster.worker(0).Signal(SIGKILL);
  cluster.worker(0).Wait();
  ASSERT_NE(cluster.manager().WaitForLine("lost in epoch"), "") << cluster.manager().Output();
  Generation generation;
  std::thread client([&] { generation = Generate(cluster.client(), GreedyRequest("Once upon a time", 4)); });
  cluster.RestartWorker(0);
  client.join();
  EXPECT_TRUE(generation.status.ok()) << generation.status;
  EXPECT_EQ(generation.token_ids.size(), 4u);
}

TEST(LifecycleTest, SigtermLetsTheRunningStreamFinishAndRefusesNewOnes) {
  Cluster cluster({.model = BundledModel()});
  v1::GenerateRequest request = LongRequest("Once upon a time", 900);
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  cluster.manager().Signal(SIGTERM);
  ASSERT_NE(cluster.manager().WaitForLine("draining"), "") << cluster.manager().Output();
  const Generation refused = Generate(cluster.client(), GreedyRequest("One day", 4));
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable) << refused.status;
  int num_tokens = response.token_ids_size();
  while (stream->Next(&response)) num_tokens += response.token_ids_size();
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(num_tokens, 900);
  EXPECT_EQ(cluster.manager().Wait(), 0);
}

TEST(LifecycleTest, QueueFullIsRefusedWithARetryDelayAndLosesNothing) {
  Cluster cluster(
      {.model = BundledModel(), .worker_flags = {"--max-sequences=1"}, .manager_flags = {"--max-waiting-requests=1"}});
  v1::GenerateRequest request = LongRequest("Once upon a time", 300);
  std::vector<Generation> generations(8);
  std::vector<std::thread> threads;
  for (Generation& generation : generations) {
    threads.emplace_back([&] { generation = Generate(cluster.client(), request); });
  }
  for (std::thread& thread : threads) thread.join();
  int refused = 0;
  for (const Generation& generation : generations) {
    if (generation.status.ok()) {
      EXPECT_EQ(generation.token_ids.size(), 300u);
      continue;
    }
    ++refused;
    EXPECT_EQ(generation.status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(generation.status.message().find("try again after"), std::string::npos) << generation.status;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 8);
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

}  // namespace
}  // namespace quire
