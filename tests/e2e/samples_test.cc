// SPDX-License-Identifier: Apache-2.0

// Several samples of one prompt, the prefix cache, and mixed requests, through the real programs.

#include <algorithm>
#include <csignal>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/security/certificates.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Writes a model of random weights with a context of 2048 tokens.
void MakeModel(const std::string& directory) {
  Process make({Binary("make_model"), "--output=" + directory, "--context=2048", "--dtype=f32"});
  EXPECT_EQ(make.Wait(), 0) << make.Output();
}

v1::GenerateRequest RandomPrompt(int num_tokens, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  v1::GenerateRequest request;
  for (int i = 0; i < num_tokens; ++i) request.mutable_token_ids()->add_ids(3 + random() % 250);
  return request;
}

void ExpectSameSample(const Generation& actual, const Generation& expected) {
  EXPECT_THAT(actual.token_ids, testing::Not(IsEmpty()));
  EXPECT_EQ(actual.token_ids, expected.token_ids);
  EXPECT_EQ(actual.text, expected.text);
  EXPECT_EQ(actual.logprobs, expected.logprobs);  // Bit for bit.
  ASSERT_EQ(actual.prompt_logprobs.size(), expected.prompt_logprobs.size());
  for (size_t p = 0; p < actual.prompt_logprobs.size(); ++p) {
    EXPECT_EQ(actual.prompt_logprobs[p].SerializeAsString(), expected.prompt_logprobs[p].SerializeAsString());
  }
  EXPECT_EQ(actual.last.finish_reason(), expected.last.finish_reason());
  EXPECT_EQ(actual.last.stop(), expected.last.stop());
  EXPECT_EQ(actual.last.score(), expected.last.score());
}

class SamplesTest : public testing::Test {
 protected:
  // The tests count steps, so the size of a step must not depend on how long steps take.
  static void SetUpTestSuite() {
    directory_ = new TemporaryDirectory();
    MakeModel(*directory_ / "model");
    cluster_ = new Cluster({.model = *directory_ / "model", .manager_flags = {"--max-step-ms=0"}});
  }
  static void TearDownTestSuite() {
    delete cluster_;
    delete directory_;
  }

  static Client& client() { return cluster_->client(); }
  static uint64_t NumSteps() { return client().GetStatus()->workers(0).steps(); }

  inline static TemporaryDirectory* directory_ = nullptr;
  inline static Cluster* cluster_ = nullptr;
};

TEST_F(SamplesTest, EachOfEightEqualsItsSeedAloneAndThePromptIsComputedOnce) {
  v1::GenerateRequest request = RandomPrompt(/*num_tokens=*/1000, /*seed=*/1);
  request.mutable_sampling()->set_seed(77);
  request.mutable_stopping()->set_max_tokens(12);
  request.mutable_stopping()->set_ignore_eos(true);
  request.set_logprobs(2);
  request.set_bypass_prefix_cache(true);
  request.set_n(8);
  const uint64_t steps_before = NumSteps();
  const Generations eight = GenerateAll(client(), request);
  ASSERT_TRUE(eight.status.ok()) << eight.status;
  ASSERT_THAT(eight.samples, SizeIs(8));
  ASSERT_TRUE(cluster_->WaitUntilIdle());  // The status of the last step comes after its tokens.
  EXPECT_EQ(NumSteps() - steps_before, 2u + 11)
      << "two chunks of at most 512, of which the last draws all first tokens";
  EXPECT_EQ(eight.usage.prompt_tokens(), 1000u);
  EXPECT_EQ(eight.usage.completion_tokens(), 8u * 12);
  EXPECT_EQ(eight.usage.cached_tokens(), 0u);

  request.set_n(1);
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(absl::StrCat("sample ", i));
    request.mutable_sampling()->set_seed(77 + i);
    ExpectSameSample(eight.samples[i], Generate(client(), request));
    EXPECT_TRUE(i == 0 || eight.samples[i].token_ids != eight.samples[0].token_ids);
  }
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

TEST_F(SamplesTest, TheSecondCallFindsThePromptInTheCacheUnlessItsSaltDiffers) {
  v1::GenerateRequest request = RandomPrompt(/*num_tokens=*/1000, /*seed=*/2);
  request.mutable_sampling()->set_temperature(0);
  request.set_logprobs(1);
  const Generations first = GenerateAll(client(), request);
  ASSERT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.usage.cached_tokens(), 0u);
  const Generations second = GenerateAll(client(), request);
  EXPECT_EQ(second.usage.cached_tokens(), 999u) << "the last token is always computed";
  ExpectSameSample(second.samples[0], first.samples[0]);

  request.set_bypass_prefix_cache(true);
  EXPECT_EQ(GenerateAll(client(), request).usage.cached_tokens(), 0u);
  request.clear_bypass_prefix_cache();
  request.set_cache_salt("other");
  const Generations salted = GenerateAll(client(), request);
  EXPECT_EQ(salted.usage.cached_tokens(), 0u);
  ExpectSameSample(salted.samples[0], first.samples[0]);
  EXPECT_EQ(GenerateAll(client(), request).usage.cached_tokens(), 999u);
}

TEST_F(SamplesTest, BestOfReturnsTheBestOfWhatTheSeedsGive) {
  v1::GenerateRequest request = RandomPrompt(/*num_tokens=*/30, /*seed=*/3);
  request.mutable_sampling()->set_seed(5);
  request.set_logprobs(0);
  request.set_n(6);
  const Generations all = GenerateAll(client(), request);
  ASSERT_TRUE(all.status.ok()) << all.status;
  // The negative mean logprob, so that the best sample comes first, and the sample.
  std::vector<std::pair<double, int>> means;
  for (int i = 0; i < 6; ++i) {
    double sum = 0;
    for (float logprob : all.samples[i].logprobs) sum += logprob;
    means.push_back({-sum / all.samples[i].logprobs.size(), i});
  }
  std::sort(means.begin(), means.end());

  request.set_n(2);
  request.set_best_of(6);
  const Generations best = GenerateAll(client(), request);
  ASSERT_TRUE(best.status.ok()) << best.status;
  ASSERT_THAT(best.samples, SizeIs(2));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(best.samples[i].token_ids, all.samples[means[i].second].token_ids);
    EXPECT_EQ(best.samples[i].last.seed(), 5u + means[i].second);
    EXPECT_NEAR(best.samples[i].last.score(), -means[i].first, 1e-5);
  }
  EXPECT_EQ(best.usage.completion_tokens(), all.usage.completion_tokens());
}

TEST_F(SamplesTest, SixtyFourSamplesRun) {
  v1::GenerateRequest request = RandomPrompt(/*num_tokens=*/10, /*seed=*/4);
  request.set_n(64);
  const Generations all = GenerateAll(client(), request);
  ASSERT_TRUE(all.status.ok()) << all.status;
  EXPECT_THAT(all.samples, SizeIs(64));
}

TEST_F(SamplesTest, MoreSamplesThanRowsAreRefused) {
  Cluster small({.model = BundledModel(), .worker_flags = {"--max-sequences=3"}});
  v1::GenerateRequest request;
  request.set_text("Once");
  request.set_n(4);
  const absl::Status status = GenerateAll(small.client(), request).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is 4, the worker runs at most 3 sequences"));
}

// Samples and beams that are cut off.

v1::GenerateRequest LongStory() {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.mutable_sampling()->set_seed(3);
  request.mutable_stopping()->set_max_tokens(TestsGpuBackend() ? 24 : 400);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

v1::GenerateRequest LongSamples() {
  v1::GenerateRequest request = LongStory();
  request.set_n(4);
  return request;
}

v1::GenerateRequest LongSearch() {
  v1::GenerateRequest request = LongStory();
  request.mutable_beam()->set_width(4);
  request.mutable_beam()->set_num_return_sequences(2);
  return request;
}

TEST(CutOffTest, SamplesAndBeamsContinueTheSameAfterTheirWorkerWasKilledAndStartedAgain) {
  Cluster cluster({.model = BundledModel()});
  const Generations calm_search = GenerateAll(cluster.client(), LongSearch());
  const Generations calm_samples = GenerateAll(cluster.client(), LongSamples());

  Generations search;
  std::thread searching([&] { search = GenerateAll(cluster.client(), LongSearch()); });
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(LongSamples(), absl::Seconds(120));
  // The worker is killed when every sample has tokens in a block of its own and many are still to come.
  const size_t num_before_kill = TestsGpuBackend() ? 8 : 20;
  std::vector<std::vector<uint32_t>> tokens(4);
  v1::GenerateResponse response;
  bool is_killed = false;
  while (stream->Next(&response)) {
    std::vector<uint32_t>& sample = tokens[response.index()];
    sample.insert(sample.end(), response.token_ids().begin(), response.token_ids().end());
    if (is_killed || tokens[3].size() < num_before_kill) continue;
    is_killed = true;
    cluster.worker(0).Signal(SIGKILL);
    cluster.worker(0).Wait();
    cluster.RestartWorker(0);
  }
  searching.join();
  EXPECT_TRUE(is_killed);
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(tokens[i], calm_samples.samples[i].token_ids);
  ASSERT_TRUE(search.status.ok()) << search.status;
  ASSERT_THAT(search.samples, SizeIs(2));
  for (int i = 0; i < 2; ++i) ExpectSameSample(search.samples[i], calm_search.samples[i]);
}

TEST(CutOffTest, ClientsThatLeaveFreeTheBlocksOfAllSamplesAndBeams) {
  Cluster cluster({.model = BundledModel()});
  for (const v1::GenerateRequest& request : {LongSamples(), LongSearch()}) {
    std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
    v1::GenerateResponse response;
    ASSERT_TRUE(stream->Next(&response));
    stream.reset();
    EXPECT_TRUE(cluster.WaitUntilIdle());
  }
}

TEST(CutOffTest, AbortEndsEverySampleAndShowsHowFarTheSearchWas) {
  Cluster cluster({.model = BundledModel()});
  for (v1::GenerateRequest request : {LongSamples(), LongSearch()}) {
    request.set_request_id("long");
    const size_t num_owed = request.has_beam() ? 1 : 4;
    const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(request, absl::Seconds(120));
    v1::GenerateResponse response;
    ASSERT_TRUE(stream->Next(&response));
    EXPECT_TRUE(cluster.client().Abort("long").ok());
    size_t num_aborted = 0;
    while (stream->Next(&response)) num_aborted += response.finish_reason() == v1::FINISH_REASON_ABORT;
    EXPECT_EQ(num_aborted, num_owed);
    EXPECT_TRUE(response.has_usage());
    EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
    EXPECT_TRUE(cluster.WaitUntilIdle());
  }
}

// All kinds of requests together.

constexpr char kStory[] =
    "Once upon a time there was a little girl who lived near the sea with her dog. Every morning they walked to the "
    "beach to look for shells. One day the dog found a small blue box in the sand. The girl opened it, and inside was ";

v1::GenerateRequest MixedRequest(int i) {
  std::mt19937 random(static_cast<uint32_t>(i));
  v1::GenerateRequest request;
  request.set_text(std::string(kStory).substr(0, 20 + random() % (sizeof kStory - 21)));
  request.mutable_stopping()->set_max_tokens(4 + random() % (TestsGpuBackend() ? 16 : 40));
  if (i % 5 == 1) request.mutable_stopping()->add_stop(" the");
  request.set_logprobs(0);
  if (i % 8 == 4 || i % 8 == 5) request.set_prompt_logprobs(1);
  if (i % 7 == 2) request.set_bypass_prefix_cache(true);
  v1::SamplingParams* sampling = request.mutable_sampling();
  if (i % 6 == 3) sampling->set_repetition_penalty(1.3f);
  switch (i % 4) {
    case 0:
      request.mutable_beam()->set_width(1 + random() % 6);
      request.mutable_beam()->set_num_return_sequences(1 + random() % request.beam().width());
      break;
    case 1:
      request.set_n(2 + random() % 4);
      sampling->set_seed(random());
      break;
    case 2:
      sampling->set_temperature(0);
      break;
    case 3:
      sampling->set_seed(random());
      sampling->set_temperature(0.8f);
      break;
  }
  return request;
}

// The requests are beams, samples, greedy and sampled ones in turn.
int NumMixed() {
  return TestsGpuBackend() ? 6 : 32;
}

std::vector<Generations> RunMixedAlone() {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--prefix-cache=false"}});
  std::vector<Generations> all;
  for (int i = 0; i < NumMixed(); ++i) all.push_back(GenerateAll(cluster.client(), MixedRequest(i)));
  return all;
}

std::vector<Generations> RunMixedTogether(Client& client) {
  std::vector<Generations> all(NumMixed());
  std::vector<std::thread> threads;
  for (int i = 0; i < NumMixed(); ++i) {
    threads.emplace_back([&, i] { all[i] = GenerateAll(client, MixedRequest(i)); });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

TEST(MixedTest, BeamsAndSamplesInAScarcePoolEqualEachRequestAlone) {
  const std::vector<Generations> alone = RunMixedAlone();
  for (const char* swap_bytes : {"0", "64MiB"}) {
    Cluster cluster({.model = BundledModel(),
                     .worker_flags = {"--block-size=8", TestsGpuBackend() ? "--num-blocks=32" : "--num-blocks=56",
                                      absl::StrCat("--swap-bytes=", swap_bytes)},
                     .manager_flags = {"--max-chunk-tokens=13"}});
    for (int round = 0; round < (TestsGpuBackend() ? 1 : 2); ++round) {
      SCOPED_TRACE(absl::StrCat("swap bytes ", swap_bytes, ", round ", round));
      const std::vector<Generations> together = RunMixedTogether(cluster.client());
      for (int i = 0; i < NumMixed(); ++i) {
        SCOPED_TRACE(absl::StrCat("request ", i));
        ASSERT_TRUE(alone[i].status.ok()) << alone[i].status;
        ASSERT_TRUE(together[i].status.ok()) << together[i].status;
        ASSERT_EQ(together[i].samples.size(), alone[i].samples.size());
        for (size_t s = 0; s < alone[i].samples.size(); ++s)
          ExpectSameSample(together[i].samples[s], alone[i].samples[s]);
      }
    }
    const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
    ASSERT_TRUE(status.ok());
    EXPECT_GT(status->workers(0).preemptions(), 0u) << "the pool was meant to be too small";
    EXPECT_TRUE(cluster.WaitUntilIdle());
  }
}

TEST_F(SamplesTest, BatchedRequestsGiveWhatCallsOfTheirOwnGive) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 24; ++i) {
    v1::GenerateRequest request = RandomPrompt(/*num_tokens=*/10 + 20 * i, /*seed=*/100 + i);
    request.mutable_sampling()->set_seed(i);
    request.mutable_stopping()->set_max_tokens(5 + i);
    request.set_logprobs(1);
    requests.push_back(request);
  }
  const std::unique_ptr<GenerateBatchStream> batch = client().GenerateBatch();
  for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(batch->Start(i + 1, requests[i]).ok());
  ASSERT_TRUE(batch->Start(100, requests[0], absl::ZeroDuration()).ok());
  ASSERT_TRUE(batch->Start(101, v1::GenerateRequest()).ok());
  batch->HalfClose();
  std::map<uint64_t, Generation> results;
  v1::GenerateBatchResponse message;
  while (batch->Next(&message)) {
    for (const v1::GenerateBatchEntry& entry : message.entries()) {
      Generation& result = results[entry.tag()];
      result.text += entry.response().text_delta();
      for (const uint32_t id : entry.response().token_ids()) result.token_ids.push_back(id);
      for (const auto& logprobs : entry.response().logprobs()) result.logprobs.push_back(logprobs.chosen().logprob());
      if (entry.has_response()) result.last = entry.response();
      if (entry.has_end()) result.status = FromRpcStatus(entry.end());
    }
  }
  const absl::Status status = batch->Finish();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(results, SizeIs(requests.size() + 2));
  EXPECT_EQ(results[100].status.code(), absl::StatusCode::kDeadlineExceeded) << results[100].status;
  EXPECT_EQ(results[101].status.code(), absl::StatusCode::kInvalidArgument) << results[101].status;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(absl::StrCat("request ", i));
    EXPECT_TRUE(results[i + 1].status.ok()) << results[i + 1].status;
    ExpectSameSample(results[i + 1], Generate(client(), requests[i]));
  }
  EXPECT_TRUE(cluster_->WaitUntilIdle());
}

}  // namespace
}  // namespace quire
