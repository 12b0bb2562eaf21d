// SPDX-License-Identifier: Apache-2.0

#include <cmath>

#include "base/check.h"
#include "kv_manager/worker_link/wire.h"
#include "quire/v1/worker.pb.h"
#include "tests/fuzz/message_input.h"

namespace quire {
namespace {

constexpr int kVocabSize = 100;

// A step of three slices: one draws a token with two logprobs, one reports four candidates, and one computes two tokens
// of a prompt with one logprob each.
ExpectedResult Expected() {
  ExpectedResult expected;
  expected.step = StepId{7};
  expected.num_drawn = 1;
  expected.num_candidate_lists = 1;
  expected.has_tables = true;
  expected.slices.push_back({.sample = true, .num_logprobs = 2, .num_prompt_logprobs = -1, .prompt_tokens = {}});
  expected.slices.push_back(
      {.sample = true, .num_logprobs = -1, .num_prompt_logprobs = -1, .prompt_tokens = {}, .num_candidates = 4});
  expected.slices.push_back({.sample = false, .num_logprobs = -1, .num_prompt_logprobs = 1, .prompt_tokens = {11, 12}});
  return expected;
}

void CheckToken(TokenId token) {
  QUIRE_CHECK(token >= 0 && token < kVocabSize) << token;
}

void CheckScores(const ScoredToken& scored, size_t num_logprobs) {
  CheckToken(scored.token);
  QUIRE_CHECK(!std::isnan(scored.logprob));
  QUIRE_CHECK(scored.top.size() == num_logprobs) << scored.top.size();
  for (const TokenLogprob& top : scored.top) CheckToken(top.token);
}

// A result is refused, or it fits the plan and every id is in its range.
void Decode(const v1::StepResult& result) {
  static const ExpectedResult expected = Expected();
  const auto decoded = DecodeStepResult(result, expected, kVocabSize);
  if (!decoded.ok()) {
    QUIRE_CHECK(!decoded.status().message().empty());
    return;
  }
  QUIRE_CHECK(decoded->step == expected.step && decoded->slices.size() == expected.slices.size());
  for (size_t i = 0; i < decoded->slices.size(); ++i) {
    const SliceResult& slice = decoded->slices[i];
    if (slice.failure.has_value()) {
      QUIRE_CHECK(!slice.sampled && slice.candidates.empty() && slice.prompt_logprobs.empty()) << i;
      continue;
    }
    if (i == 0) CheckScores(slice.token, 2);
    QUIRE_CHECK(slice.candidates.size() <= 4);
    for (const TokenLogprob& candidate : slice.candidates) CheckToken(candidate.token);
    QUIRE_CHECK(slice.prompt_logprobs.size() == (i == 2 ? 2u : 0u)) << i;
    for (const ScoredToken& scored : slice.prompt_logprobs) CheckScores(scored, 1);
  }
  QUIRE_CHECK(decoded->tables.size() == expected.slices.size());
}

}  // namespace
}  // namespace quire

QUIRE_FUZZ_MESSAGES(quire::v1::StepResult, quire::Decode);
