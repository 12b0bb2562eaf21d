#ifndef QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_
#define QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace quire {

// A prompt by the contents of its chunks of 512 tokens: equal ids stand for equal tokens after equal prompts. The last
// chunk may be shorter.
struct TracedPrompt {
  static constexpr int kChunkTokens = 512;

  int num_tokens = 0;
  std::vector<int> chunks;
  int num_output_tokens = 1;
  double arrival_s = 0;  // After the trace's beginning.

  bool operator==(const TracedPrompt&) const = default;
};

// Lines of the Mooncake traces: {"timestamp": 1500, "input_length": 600, "output_length": 52, "hash_ids": [0, 7]}, with
// the time in ms. Without a time a prompt arrives at the beginning, without an output length one token is generated.
// INVALID_ARGUMENT names the first bad line.
absl::StatusOr<std::vector<TracedPrompt>> ParseMooncakeTrace(absl::string_view jsonl);

// Conversations of several turns like those of the trace: all begin with the same chunk, two of five prompts go on
// where an earlier one has ended, lengths have the trace's mean of 12000 tokens.
std::vector<TracedPrompt> DrawPrompts(int count, uint64_t seed);

struct PromptTrace {
  std::string source;  // For people: the file, or that they are drawn.
  std::vector<TracedPrompt> prompts;
};

// The first `count` prompts of the file, drawn ones when there is no such file.
absl::StatusOr<PromptTrace> LoadPrompts(const std::string& path, int count);

// Token i of chunk c is c * 512 + i: different chunks have no token in common.
std::vector<TokenId> TokensOf(const TracedPrompt& prompt);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_
