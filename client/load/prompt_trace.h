// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_
#define QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A prompt as a list of chunks of 512 tokens. Chunks with equal ids hold equal tokens after equal prefixes. The last
// chunk may be shorter.
struct TracedPrompt {
  static constexpr int kChunkTokens = 512;

  int num_tokens = 0;
  std::vector<int> chunks;
  int num_output_tokens = 1;
  double arrival_s = 0;  // Seconds after the beginning of the trace.

  bool operator==(const TracedPrompt&) const = default;
};

// Parses lines of the Mooncake traces: {"timestamp": 1500, "input_length": 600, "output_length": 52, "hash_ids": [0,
// 7]}. The timestamp is in milliseconds. A prompt without a timestamp arrives at the beginning; without an output
// length one token is generated. INVALID_ARGUMENT names the first bad line.
absl::StatusOr<std::vector<TracedPrompt>> ParseMooncakeTrace(absl::string_view jsonl);

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_PROMPT_TRACE_H_
