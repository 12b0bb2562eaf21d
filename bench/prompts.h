// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_PROMPTS_H_
#define QUIRE_BENCH_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "client/load/prompt_trace.h"

namespace quire {

// Prompts of conversations with several turns, similar to the Mooncake traces: all begin with the same chunk, two of
// five prompts continue an earlier one, and the mean length is 12000 tokens, as in the trace.
std::vector<TracedPrompt> DrawPrompts(int count, uint64_t seed);

struct Prompts {
  std::string source;  // Tells people the file, or that the prompts are drawn.
  std::vector<TracedPrompt> prompts;
};

// The first `count` prompts of a Mooncake trace, or drawn ones if there is no such file. INVALID_ARGUMENT when the file
// is not such a trace.
absl::StatusOr<Prompts> LoadPrompts(const std::string& path, int count);

// The tokens of a prompt. Token i of chunk c is c * 512 + i, so different chunks have no token in common.
std::vector<TokenId> TokensOf(const TracedPrompt& prompt);

}  // namespace quire

#endif  // QUIRE_BENCH_PROMPTS_H_
