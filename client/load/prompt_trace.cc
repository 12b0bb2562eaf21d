#include "client/load/prompt_trace.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "client/load/random.h"

namespace quire {
namespace {

constexpr int kMaxChunk = (1 << 30) / TracedPrompt::kChunkTokens;
constexpr uint64_t kMaxOutput = 1 << 30;

bool ParsePrompt(absl::string_view line, TracedPrompt* prompt) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto length = json.find("input_length");
  const auto ids = json.find("hash_ids");
  if (length == json.end() || !length->is_number_integer() || ids == json.end() || !ids->is_array()) return false;
  for (const nlohmann::json& id : *ids) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMaxChunk) return false;
    prompt->chunks.push_back(id.get<int>());
  }
  const int64_t num_tokens = length->get<int64_t>();
  const int64_t capacity = static_cast<int64_t>(prompt->chunks.size()) * TracedPrompt::kChunkTokens;
  if (num_tokens <= capacity - TracedPrompt::kChunkTokens || num_tokens > capacity || num_tokens < 1) return false;
  prompt->num_tokens = static_cast<int>(num_tokens);
  const nlohmann::json output = json.value("output_length", nlohmann::json(1));
  const nlohmann::json timestamp = json.value("timestamp", nlohmann::json(0));
  if (!output.is_number_unsigned() || output.get<uint64_t>() > kMaxOutput) return false;
  if (!timestamp.is_number() || timestamp.get<double>() < 0) return false;
  prompt->num_output_tokens = std::max(1, output.get<int>());
  prompt->arrival_s = timestamp.get<double>() / 1000;
  return true;
}

}  // namespace

absl::StatusOr<std::vector<TracedPrompt>> ParseMooncakeTrace(absl::string_view jsonl) {
  std::vector<TracedPrompt> prompts;
  int line_number = 0;
  for (const absl::string_view line : absl::StrSplit(jsonl, '\n')) {
    ++line_number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    if (!ParsePrompt(line, &prompts.emplace_back())) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line_number, " is '", line.substr(0, 80),
                                                     "', expected an input_length and one of the hash_ids for every ",
                                                     TracedPrompt::kChunkTokens, " tokens of it"));
    }
  }
  return prompts;
}

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
      // People go on soon: the last prompts are likelier than those long ago.
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

absl::StatusOr<PromptTrace> LoadPrompts(const std::string& path, int count) {
  PromptTrace trace;
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
