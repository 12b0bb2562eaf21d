// SPDX-License-Identifier: Apache-2.0

// Tests the promise of docs/architecture.md, section 7, with the real programs: a stream does not depend on other
// requests, on the chunk size, on the block size or on the worker.

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

constexpr char kStory[] =
    "Once upon a time there was a little girl who lived near the sea with her dog. Every morning they walked to the "
    "beach to look for shells. One day the dog found a small blue box in the sand. The girl opened it, and inside was ";

// Request `i` of a set with different lengths, temperatures and penalties. Odd and even requests have no common prefix,
// so that placement has a reason to use two workers.
v1::GenerateRequest MixedRequest(int i) {
  std::mt19937 random(static_cast<uint32_t>(i));
  v1::GenerateRequest request;
  const size_t start = i % 2 == 0 ? 0 : 80;
  request.set_text(std::string(kStory).substr(start, 1 + random() % (sizeof kStory - 1 - start)));
  v1::SamplingParams* sampling = request.mutable_sampling();
  sampling->set_seed(random());
  sampling->set_temperature(i % 3 == 0 ? 0.0f : 0.8f);
  if (i % 4 == 1) sampling->set_top_p(0.9f);
  if (i % 4 == 2) sampling->set_top_k(20);
  if (i % 5 == 2) sampling->set_xtc_probability(0.5f);
  if (i % 5 == 3) sampling->set_repetition_penalty(1.2f);
  if (i % 5 == 4) sampling->set_frequency_penalty(0.5f);
  request.mutable_stopping()->set_max_tokens(4 + random() % (TestsGpuBackend() ? 32 : 60));
  request.mutable_stopping()->set_ignore_eos(true);
  request.set_logprobs(i % 2);
  if (i % 8 == 0) request.set_prompt_logprobs(1);
  return request;
}

std::vector<Generation> RunTogether(Client& client, int num_requests) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < num_requests; ++i) requests.push_back(MixedRequest(i));
  return GenerateTogether(client, requests);
}

std::vector<Generation> RunAlone(Client& client, int num_requests) {
  std::vector<Generation> generations;
  for (int i = 0; i < num_requests; ++i) generations.push_back(Generate(client, MixedRequest(i)));
  return generations;
}

void ExpectSameBits(const std::vector<Generation>& actual, const std::vector<Generation>& expected) {
  ExpectSame(actual, expected);
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    ExpectSamePromptLogprobs(actual[i], expected[i]);
  }
}

TEST(ExactnessTest, SixtyFourStreamsOverTwoWorkersEqualEachRequestAlone) {
  const int num_requests = TestsGpuBackend() ? 6 : 64;
  Cluster alone({.model = BundledModel()});
  const std::vector<Generation> expected = RunAlone(alone.client(), num_requests);
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  ExpectSameBits(RunTogether(cluster.client(), num_requests), expected);
  const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
  ASSERT_TRUE(status.ok());
  for (const v1::WorkerStatus& worker : status->workers()) EXPECT_GT(worker.steps(), 0u) << worker.address();
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST(ExactnessTest, ChunkSizeAndBlockSizeChangeNoBit) {
  const int num_requests = TestsGpuBackend() ? 3 : 24;
  Cluster reference({.model = BundledModel()});
  const std::vector<Generation> expected = RunAlone(reference.client(), num_requests);
  const std::vector<std::pair<int, int>> chunk_and_block = {{1, 16}, {7, 16},  {64, 16}, {64, 1},
                                                            {7, 8},  {64, 32}, {7, 64}};
  for (const auto& [chunk, block] : chunk_and_block) {
    if (TestsGpuBackend() && chunk != 7) continue;
    SCOPED_TRACE(absl::StrCat("chunk ", chunk, ", block ", block));
    Cluster cluster({.model = BundledModel(),
                     .worker_flags = {absl::StrCat("--block-size=", block)},
                     .manager_flags = {absl::StrCat("--max-chunk-tokens=", chunk)}});
    ExpectSameBits(RunTogether(cluster.client(), num_requests), expected);
  }
}

TEST(ExactnessTest, AScarcePoolPreemptsAndChangesNoBit) {
  const int num_requests = TestsGpuBackend() ? 6 : 24;
  Cluster reference({.model = BundledModel()});
  const std::vector<Generation> expected = RunAlone(reference.client(), num_requests);
  Cluster cluster({.model = BundledModel(),
                   .worker_flags = {"--block-size=16", TestsGpuBackend() ? "--num-blocks=7" : "--num-blocks=24"}});
  // Only requests that run at the same time take blocks from each other, and a busy machine may start them too late.
  constexpr int kMaxRounds = 10;
  uint64_t num_preemptions = 0;
  for (int round = 0; round < kMaxRounds && num_preemptions == 0; ++round) {
    ExpectSameBits(RunTogether(cluster.client(), num_requests), expected);
    const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
    ASSERT_TRUE(status.ok());
    num_preemptions = status->workers(0).preemptions();
  }
  EXPECT_GT(num_preemptions, 0u) << "the pool was meant to be too small";
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

}  // namespace
}  // namespace quire
