// SPDX-License-Identifier: Apache-2.0

#include "bench/prompts.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/load/random.h"

namespace quire {

std::vector<TracedPrompt> DrawPrompts(int count, uint64_t seed) {
  constexpr double kMeanNewChunks = 15;
  constexpr int kMaxChunks = 250;
  BenchRandom random(seed);
  std::vector<TracedPrompt> prompts;
  int next_chunk = 1;
  for (int i = 0; i < count; ++i) {
    TracedPrompt prompt;
    prompt.chunks = {0};
    if (i > 0 && random.Uniform() < 0.4) {
      // People continue a conversation soon: recent prompts are likelier than old ones.
      const int back = std::min(i, 1 + static_cast<int>(300 * random.Exponential()));
      const TracedPrompt& earlier = prompts[i - back];
      const bool is_whole = earlier.num_tokens % TracedPrompt::kChunkTokens == 0;
      prompt.chunks.assign(earlier.chunks.begin(), earlier.chunks.end() - (is_whole ? 0 : 1));
    }
    const int num_new = 1 + static_cast<int>(kMeanNewChunks * random.Exponential());
    for (int j = 0; j < num_new && prompt.chunks.size() < kMaxChunks; ++j) prompt.chunks.push_back(next_chunk++);
    const int missing = static_cast<int>(random.Next() % TracedPrompt::kChunkTokens);
    prompt.num_tokens = static_cast<int>(prompt.chunks.size()) * TracedPrompt::kChunkTokens - missing;
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

absl::StatusOr<Prompts> LoadPrompts(const std::string& path, int count) {
  Prompts trace;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    trace.prompts = DrawPrompts(count, /*seed=*/1);
    trace.source = absl::StrCat("drawn prompts, there is no ", path.empty() ? "trace" : path);
    return trace;
  }
  std::ostringstream jsonl;
  jsonl << file.rdbuf();
  QUIRE_ASSIGN_OR_RETURN(trace.prompts, ParseMooncakeTrace(jsonl.str()));
  if (trace.prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, " has no prompts"));
  trace.prompts.resize(std::min<size_t>(count, trace.prompts.size()));
  trace.source = path;
  return trace;
}

std::vector<TokenId> TokensOf(const TracedPrompt& prompt) {
  std::vector<TokenId> tokens(prompt.num_tokens);
  for (int i = 0; i < prompt.num_tokens; ++i) {
    const int chunk = prompt.chunks[i / TracedPrompt::kChunkTokens];
    tokens[i] = chunk * TracedPrompt::kChunkTokens + i % TracedPrompt::kChunkTokens;
  }
  return tokens;
}

}  // namespace quire
