// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/kv_manager/inference/service_harness.h"

// Requests with several samples through gRPC.

namespace quire {
namespace {

using ::testing::SizeIs;

std::vector<TokenId> TokensOf(const ServiceHarness::Result& result, uint32_t index) {
  std::vector<TokenId> tokens;
  for (const v1::GenerateResponse& response : result.responses) {
    if (response.index() != index) continue;
    tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
  }
  return tokens;
}

v1::GenerateRequest Sampled(uint64_t seed) {
  v1::GenerateRequest request;
  request.set_text("ab");
  request.mutable_sampling()->set_seed(seed);
  request.mutable_stopping()->set_max_tokens(5);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

TEST(SamplesServiceTest, SampleIsWhatItsSeedGivesAlone) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request = Sampled(100);
  request.set_n(3);
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  for (uint32_t i = 0; i < 3; ++i) {
    const ServiceHarness::Result alone = harness.Generate(Sampled(100 + i));
    EXPECT_THAT(TokensOf(result, i), SizeIs(5));
    EXPECT_EQ(TokensOf(result, i), TokensOf(alone, 0));
  }
  EXPECT_EQ(result.last().usage().completion_tokens(), 15u);
}

TEST(SamplesServiceTest, BestOfReturnsWholeSamplesWithTheSeedsThatRepeatThem) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request = Sampled(7);
  request.set_n(2);
  request.set_best_of(4);
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_THAT(result.responses, SizeIs(2));
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(result.responses[i].index(), i);
    EXPECT_EQ(result.responses[i].score(), -0.5f);  // The logprob of each token.
    EXPECT_EQ(TokensOf(result, i), TokensOf(harness.Generate(Sampled(result.responses[i].seed())), 0));
  }
  EXPECT_EQ(result.last().usage().completion_tokens(), 20u);
}

TEST(SamplesServiceTest, StopStringsOfAllSamplesEndTheRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = {ToyTokenizer::Byte('a'), ToyTokenizer::Byte('X')};
  v1::GenerateRequest request = Sampled(1);
  request.mutable_stopping()->set_max_tokens(100);
  request.mutable_stopping()->add_stop("X");
  request.set_n(2);
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.text(), "aa");
  harness.engine.WaitUntilIdle();
}

// Samples end by stop strings, which the stream finds, and by length, which the engine finds. The stream and
// the engine learn of each other's ends with a delay.
TEST(SamplesServiceTest, ManyCallsWithSamplesThatStopAnywhereEqualEachSampleAlone) {
  ServiceHarness harness(ToyModel());
  const auto request_of = [](uint64_t seed, uint32_t n) {
    v1::GenerateRequest request = Sampled(seed);
    request.set_n(n);
    request.mutable_stopping()->set_max_tokens(40);
    for (char c = 'a'; c < 'i'; ++c) request.mutable_stopping()->add_stop(std::string(1, c));
    return request;
  };
  std::vector<std::thread> clients;
  for (uint64_t client = 0; client < 8; ++client) {
    clients.emplace_back([&, client] {
      for (uint64_t round = 0; round < 20; ++round) {
        const uint64_t seed = 1000 * client + 10 * round;
        const ServiceHarness::Result result = harness.Generate(request_of(seed, 4));
        ASSERT_TRUE(result.status.ok()) << result.status.error_message();
        EXPECT_TRUE(result.last().has_usage());
        uint32_t num_tokens = 0;
        for (uint32_t i = 0; i < 4; ++i) {
          const std::vector<TokenId> alone = harness.Generate(request_of(seed + i, 1)).tokens();
          EXPECT_EQ(TokensOf(result, i), alone) << "seed " << seed << ", sample " << i;
          num_tokens += alone.size();
        }
        EXPECT_EQ(result.last().usage().completion_tokens(), num_tokens);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  harness.engine.WaitUntilIdle();
}

TEST(SamplesServiceTest, StopStringsOfABeamSearchReachTheScheduler) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request = Sampled(1);
  request.mutable_beam()->set_width(2);
  EXPECT_TRUE(harness.Generate(request).status.ok());
  request.mutable_stopping()->add_stop("XY");
  EXPECT_TRUE(harness.Generate(request).status.ok());
  const std::vector<Request> requests = harness.engine.requests();
  ASSERT_THAT(requests, SizeIs(2));
  EXPECT_EQ(requests[0].beam_stop, nullptr);
  ASSERT_NE(requests[1].beam_stop, nullptr);
  const std::vector<TokenId> stops = {ToyTokenizer::Byte('X'), ToyTokenizer::Byte('Y')};
  EXPECT_TRUE(requests[1].beam_stop->IsMet(stops, 2));
  EXPECT_FALSE(requests[1].beam_stop->IsMet(absl::MakeConstSpan(stops).first(1), 1));
}

}  // namespace
}  // namespace quire
