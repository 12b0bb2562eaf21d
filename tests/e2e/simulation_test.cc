// SPDX-License-Identifier: Apache-2.0

// Workers that compute nothing behind the real manager: every stream has the tokens that the reference function
// computes from its prompt.

#include <csignal>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/simulated/expected_tokens.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/quirectl.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/simulated_model.h"

namespace quire {
namespace {

using simulated::ExpectedTokens;
using simulated::TokenRule;
using testing::HasSubstr;
using testing::SizeIs;

// The bundled model without its weights.
class ModelWithoutWeights {
 public:
  ModelWithoutWeights() {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
      directory_.CopyFrom(BundledModel(), name);
    }
  }

  const std::string& path() const { return directory_.path(); }
  TokenRule Rule(int mean_output_tokens = 0) const {
    return *TokenRuleOf(*ReadModelConfig(directory_.path()), mean_output_tokens);
  }

 private:
  TestDirectory directory_;
};

std::vector<std::string> Flags(const std::vector<std::string>& more = {}) {
  std::vector<std::string> flags = {"--device=simulated", "--simulated-step-times=0"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// The prompts of even requests begin with the same 40 tokens.
std::vector<int32_t> PromptOf(int i) {
  std::vector<int32_t> prompt;
  for (int t = 0; t < 30 + 5 * i; ++t) prompt.push_back(10 + (i % 2 == 0 && t < 40 ? t : 7 * i + t) % 2000);
  return prompt;
}

// Request `i` is greedy, or it draws 3 samples from its seed.
bool IsGreedy(int i) {
  return i % 3 == 0;
}

v1::GenerateRequest RequestOf(int i) {
  v1::GenerateRequest request;
  for (const int32_t token : PromptOf(i)) request.mutable_token_ids()->add_ids(static_cast<uint32_t>(token));
  v1::SamplingParams* sampling = request.mutable_sampling();
  if (IsGreedy(i)) {
    sampling->set_temperature(0);
  } else {
    sampling->set_temperature(0.9f);
    sampling->set_top_p(0.8f);
    sampling->set_xtc_probability(0.5f);
    sampling->set_seed(static_cast<uint64_t>(1000 * i));
    request.set_n(3);
  }
  request.mutable_stopping()->set_max_tokens(static_cast<uint32_t>(40 + i));
  return request;
}

std::vector<uint32_t> Expected(const TokenRule& rule, int i, int sample) {
  std::vector<int32_t> tokens;
  if (IsGreedy(i)) {
    tokens = ExpectedTokens(rule, PromptOf(i), 40 + i);
  } else {
    SamplingRow row{};
    row.temperature = 0.9f;
    row.top_p = 0.8f;
    row.xtc_probability = 0.5f;
    row.xtc_threshold = 0.1f;  // The default.
    row.repetition_penalty = 1;
    row.seed = static_cast<uint64_t>(1000 * i + sample);
    row.num_top = -1;
    row.given_token = -1;
    tokens = ExpectedTokens(rule, PromptOf(i), row, 40 + i);
  }
  return {tokens.begin(), tokens.end()};
}

TEST(SimulationTest, StreamsOfTwoWorkersAreThoseOfTheReferenceWithPreemptionSwapsAndALostWorker) {
  const ModelWithoutWeights model;
  const TokenRule rule = model.Rule();
  Cluster cluster({.model = model.path(),
                   .num_workers = 2,
                   .worker_flags = Flags({"--block-size=8", "--num-blocks=60", "--swap-bytes=2KiB"}),
                   .manager_flags = {"--max-chunk-tokens=13"}});
  const absl::StatusOr<v1::GetStatusResponse> ready = cluster.client().GetStatus();
  ASSERT_TRUE(ready.ok()) << ready.status();

  constexpr int kNumRequests = 30;
  std::vector<Generations> all(kNumRequests);
  std::vector<std::thread> threads;
  for (int i = 0; i < kNumRequests; ++i) {
    threads.emplace_back([&, i] { all[i] = GenerateAll(cluster.client(), RequestOf(i)); });
  }
  cluster.worker(1).Signal(SIGKILL);
  cluster.worker(1).Wait();
  cluster.RestartWorker(1);
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kNumRequests; ++i) {
    ASSERT_TRUE(all[i].status.ok()) << all[i].status;
    ASSERT_THAT(all[i].samples, SizeIs(IsGreedy(i) ? 1 : 3));
    for (size_t s = 0; s < all[i].samples.size(); ++s) {
      EXPECT_EQ(all[i].samples[s].token_ids, Expected(rule, i, static_cast<int>(s))) << "request " << i << ", " << s;
    }
  }
  const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_GT(status->workers(0).preemptions() + status->workers(1).preemptions(), 0u)
      << "the pools were meant to be small";
  EXPECT_TRUE(cluster.WaitUntilIdle());
}

TEST(SimulationTest, OutputsEndByThemselvesWhenTheyAreMeantTo) {
  const ModelWithoutWeights model;
  const TokenRule rule = model.Rule(/*mean_output_tokens=*/20);
  Cluster cluster({.model = model.path(), .worker_flags = Flags({"--simulated-output-tokens=20"})});
  for (int i = 0; i < 8; ++i) {
    v1::GenerateRequest request = RequestOf(3 * i);
    request.mutable_stopping()->set_max_tokens(500);
    const Generation generation = Generate(cluster.client(), request);
    ASSERT_TRUE(generation.status.ok()) << generation.status;
    EXPECT_EQ(generation.last.finish_reason(), v1::FINISH_REASON_STOP);
    const std::vector<int32_t> expected = ExpectedTokens(rule, PromptOf(3 * i), 500);
    EXPECT_EQ(generation.token_ids, std::vector<uint32_t>(expected.begin(), expected.end()));
  }
}

TEST(SimulationTest, AWorkerStopsInTheMiddleOfALongStep) {
  const ModelWithoutWeights model;
  const TestDirectory directory;
  directory.Write("times.yaml", "step: 10m\n");
  Cluster cluster({.model = model.path(),
                   .worker_flags = {"--device=simulated", "--drain-timeout=100ms",
                                    absl::StrCat("--simulated-step-times=", directory.path(), "/times.yaml")}});
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(RequestOf(0), absl::Minutes(2));
  while (cluster.client().GetStatus()->workers(0).running_requests() == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  cluster.worker(0).Signal(SIGTERM);
  EXPECT_EQ(cluster.worker(0).Wait(), 0);
}

TEST(SimulationTest, SimulatedAndRealWorkersAreDifferentGenerations) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  cluster.worker(1).Signal(SIGTERM);
  cluster.worker(1).Wait();
  cluster.RestartWorker(1, {"--device=simulated"});
  ASSERT_TRUE(cluster.WaitUntilReady());
  const absl::StatusOr<v1::GetStatusResponse> status = cluster.client().GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(status->workers(1).numerics_fingerprint(), HasSubstr("/simulated 1/"));
  EXPECT_THAT(status->workers(0).numerics_fingerprint(), testing::Not(HasSubstr("simulated")));
  EXPECT_NE(status->workers(0).generation(), status->workers(1).generation());
  const std::string command = Quirectl(cluster.endpoint(), {"status"}).output;
  EXPECT_THAT(command,
              testing::ContainsRegex("it differs from the workers of generation 2 in .*--device \\(cpu [a-z0-9_ ]*, "
                                     "not simulated 1\\)"));
  EXPECT_EQ(command.find("it differs"), command.rfind("it differs")) << "only one of them is left out: " << command;
}

}  // namespace
}  // namespace quire
