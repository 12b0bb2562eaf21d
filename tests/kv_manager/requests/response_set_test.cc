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

// Returns how much memory the responses of a request take before its first token.
size_t MemoryOf(const std::vector<TokenId>& stop_tokens, int num_samples) {
  ValidRequest request;
  request.request.prompt = {ToyTokenizer::kBos};
  request.request.num_samples = num_samples;
  request.num_returned = num_samples;
  request.named_stop_tokens = stop_tokens;
  request.output.end_tokens = stop_tokens;
  const std::shared_ptr<const ServedModel> model = ToyModel();
  const size_t before = mallinfo2().uordblks;
  const ResponseSet responses(model, "name", request);
  return mallinfo2().uordblks - before;
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
  const size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 1000; ++i) responses.AddToken(/*sample_index=*/0, token);
  EXPECT_LE(mallinfo2().uordblks - before, 1000u * 400);

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

}  // namespace
}  // namespace quire
