// SPDX-License-Identifier: Apache-2.0

#include "client/load/prompt_trace.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

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

}  // namespace quire
