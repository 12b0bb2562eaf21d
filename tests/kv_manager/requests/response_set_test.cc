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

}  // namespace
}  // namespace quire
