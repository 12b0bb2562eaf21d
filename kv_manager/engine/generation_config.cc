// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/generation_config.h"

#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
#include "base/number_text.h"
#include "base/sampling_fields.h"
#include "base/status.h"

namespace quire {
namespace {

using nlohmann::json;

absl::Status BadValue(const char* field, const json& value, absl::string_view limits) {
  return absl::FailedPreconditionError(
      absl::StrCat("generation_config.json: ", field, " is ", value.dump(), ", must be ", limits,
                   "; correct the file, remove it from the model, or start the manager "
                   "with --generation-config=none"));
}

// Returns nothing if the field is missing or null.
absl::StatusOr<std::optional<double>> Number(const json& root, const char* field, double low, double high) {
  const auto it = root.find(field);
  if (it == root.end() || it->is_null()) return std::nullopt;
  if (it->is_number() && it->get<double>() >= low && it->get<double>() <= high) return it->get<double>();
  return BadValue(field, *it, absl::StrCat(LimitText(low), " .. ", LimitText(high)));
}

absl::Status ReadInt(const json& root, const char* field, int low, std::optional<int>* out) {
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  QUIRE_ASSIGN_OR_RETURN(const std::optional<double> number, Number(root, field, low, kMaxInt));
  if (!number.has_value()) return absl::OkStatus();
  *out = static_cast<int>(*number);
  if (**out == *number) return absl::OkStatus();
  return BadValue(field, root[field], "an integer");
}

// REQUIRES: the field does not count tokens.
absl::Status ReadFloat(const json& root, const SamplingField& field, SamplingDefaults* out) {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<double> number, Number(root, field.name, field.low, field.high));
  if (!number.has_value()) return absl::OkStatus();
  const auto value = static_cast<float>(*number);
  if (!field.Allows(value)) {
    return BadValue(field.name, root[field.name],
                    absl::StrCat("above ", LimitText(field.low), " and at most ", LimitText(field.high)));
  }
  out->sampling[field.name] = value;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingDefaults> ParseGenerationConfig(absl::string_view text, int vocab_size) {
  const absl::StatusOr<json> read =
      ReadJson<json>(std::string_view(text.data(), text.size()), "generation_config.json");
  if (!read.ok()) return absl::FailedPreconditionError(read.status().message());
  const json& root = *read;
  if (!root.is_object()) return absl::FailedPreconditionError("generation_config.json: must be a JSON object");
  SamplingDefaults defaults;
  for (const SamplingField& field : kSamplingFields) {
    if (!field.is_recommended() || field.counts_tokens()) continue;
    QUIRE_RETURN_IF_ERROR(ReadFloat(root, field, &defaults));
  }
  // -1 is how vLLM writes that all tokens are kept.
  std::optional<int> top_k;
  QUIRE_RETURN_IF_ERROR(ReadInt(root, "top_k", -1, &top_k));
  if (top_k.has_value()) defaults.sampling["top_k"] = *top_k < 0 || *top_k > vocab_size ? 0 : *top_k;
  QUIRE_RETURN_IF_ERROR(ReadInt(root, "max_new_tokens", 1, &defaults.max_tokens));
  return defaults;
}

}  // namespace quire
