// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/response_set.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <memory>
#include <numeric>
#include <vector>

#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

// Returns the memory in use. Large allocations may be mappings of their own, which are counted apart from the heap.
size_t UsedBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// Returns how much memory the responses of a request take before its first token.
size_t MemoryOf(const std::vector<TokenId>& stop_tokens, int num_samples) {
  ValidRequest request;
  request.request.prompt = {ToyTokenizer::kBos};
  request.request.num_samples = num_samples;
  request.num_returned = num_samples;
  request.named_stop_tokens = stop_tokens;
  request.output.end_tokens = stop_tokens;
  const std::shared_ptr<const ServedModel> model = ToyModel();
  const size_t before = UsedBytes();
  const ResponseSet responses(model, "name", request);
  return UsedBytes() - before;
}

// A request of two kilobytes may have 1024 stop tokens and 256 samples.
TEST(ResponseSetTest, StopTokensTakeMemoryOnceForAllSamples) {
  std::vector<TokenId> stop_tokens(1024);
  std::iota(stop_tokens.begin(), stop_tokens.end(), 0);
  EXPECT_LE(MemoryOf(stop_tokens, 256), MemoryOf({0}, 256) + 64 * 1024);
}

// With best_of above n, all samples wait for the last one. Each token has 21 logprobs here, of 8 bytes each.
TEST(ResponseSetTest, LogprobsThatWaitTakeLittleMoreThanTheirNumbers) {
  ValidRequest request;
  request.request.prompt = {ToyTokenizer::kBos};
  request.request.num_samples = 2;
  request.num_returned = 1;
  request.shows_logprobs = true;
  ResponseSet responses(ToyModel(), "name", request);
  const ScoredToken token{.token = ToyTokenizer::Byte('a'), .rank = 1, .top = std::vector<TokenLogprob>(20)};
  const size_t before = UsedBytes();
  for (int i = 0; i < 1000; ++i) responses.AddToken(/*sample_index=*/0, token);
  EXPECT_LE(UsedBytes() - before, 1000u * 400);

  responses.AddToken(/*sample_index=*/1, token);
  for (const int i : {0, 1}) {
    responses.FinishSample(
        {.request = RequestId{0}, .sample_index = i, .reason = FinishReason::kLength, .ends_request = i == 1});
  }
  responses.End(/*is_whole=*/true);
  const v1::GenerateResponse& best = *responses.Next();
  ASSERT_EQ(best.logprobs_size(), 1000);
  EXPECT_EQ(best.logprobs(999).top_size(), 20);
  EXPECT_EQ(best.logprobs(999).text_offset(), 999u);
}

TEST(ResponseSetTest, TheFirstResponseOfARequestWithPinsHasTheCountsOfThePrompt) {
  ValidRequest request;
  request.request.prompt = std::vector<TokenId>(20, ToyTokenizer::Byte('p'));
  for (const bool has_pins : {false, true}) {
    if (has_pins) request.request.pins = {{.num_tokens = 9, .ttl_us = 1}, {.num_tokens = 12, .ttl_us = 1}};
    ResponseSet responses(ToyModel(), "name", request);
    responses.SetCachedTokens(4);
    if (has_pins) responses.SetPinnedTokens({8, 0});
    responses.AddToken(0, {.token = ToyTokenizer::Byte('a'), .top = {}});
    const v1::GenerateResponse first = *responses.Next();
    EXPECT_FALSE(first.has_usage());
    EXPECT_EQ(first.has_prompt_usage(), has_pins);
    responses.StartNext();
    responses.AddToken(0, {.token = ToyTokenizer::Byte('b'), .top = {}});
    responses.FinishSample(
        {.request = RequestId{0}, .sample_index = 0, .reason = FinishReason::kLength, .ends_request = true});
    responses.End(/*is_whole=*/true);
    const v1::GenerateResponse last = *responses.Next();
    EXPECT_FALSE(last.has_prompt_usage());
    EXPECT_EQ(last.usage().completion_tokens(), 2u);
    EXPECT_EQ(last.usage().pins_size(), has_pins ? 2 : 0);
    if (!has_pins) continue;
    EXPECT_EQ(last.usage().pins(0).pinned_tokens(), 8u);
    EXPECT_EQ(last.usage().pins(1).pinned_tokens(), 0u);
    v1::Usage prompt = last.usage();
    prompt.clear_completion_tokens();
    EXPECT_EQ(first.prompt_usage().SerializeAsString(), prompt.SerializeAsString());
  }
}

// The client has the counts, or the response with them, of an earlier stream.
TEST(ResponseSetTest, AContinuedStreamDoesNotRepeatTheCountsOfThePrompt) {
  ValidRequest request;
  request.request.prompt = {ToyTokenizer::kBos};
  request.request.pins = {{.num_tokens = 1, .ttl_us = 1}};
  ResponseSet responses(ToyModel(), "name", request);
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
  received.Add()->set_next_position(2);
  responses.SkipReceived(received);
  for (const char c : {'a', 'b'}) responses.AddToken(0, {.token = ToyTokenizer::Byte(c), .top = {}});
  EXPECT_FALSE(responses.Next()->has_prompt_usage());
}

}  // namespace
}  // namespace quire
