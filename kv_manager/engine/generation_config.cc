#include "kv_manager/engine/generation_config.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {
namespace {

using nlohmann::json;

// The largest float, because a request has floats.
constexpr double kMaxFloat = std::numeric_limits<float>::max();

// Returns nothing if the field is missing or null.
absl::StatusOr<std::optional<double>> Number(const json& root, const char* field, double low, double high) {
  const auto it = root.find(field);
  if (it == root.end() || it->is_null()) return std::nullopt;
  if (it->is_number() && it->get<double>() >= low && it->get<double>() <= high) return it->get<double>();
  return absl::FailedPreconditionError(absl::StrCat("generation_config.json: ", field, " is ", it->dump(), ", must be ",
                                                    low, " .. ", high,
                                                    "; correct the file or remove it from the model"));
}

absl::Status ReadFloat(const json& root, const char* field, double low, double high, std::optional<float>* out) {
  QUIRE_ASSIGN_OR_RETURN(const std::optional<double> number, Number(root, field, low, high));
  if (number.has_value()) *out = static_cast<float>(*number);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingDefaults> ParseGenerationConfig(absl::string_view text, int vocab_size) {
  const json root = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return absl::FailedPreconditionError("generation_config.json: must be a JSON object");
  SamplingDefaults defaults;
  QUIRE_RETURN_IF_ERROR(ReadFloat(root, "temperature", 0, kMaxFloat, &defaults.temperature));
  QUIRE_RETURN_IF_ERROR(ReadFloat(root, "top_p", std::numeric_limits<float>::denorm_min(), 1, &defaults.top_p));
  QUIRE_RETURN_IF_ERROR(ReadFloat(root, "min_p", 0, 1, &defaults.min_p));
  QUIRE_RETURN_IF_ERROR(ReadFloat(root, "repetition_penalty", 0.01, 10, &defaults.repetition_penalty));
  constexpr int kMaxInt = std::numeric_limits<int>::max();
  // -1 is how vLLM writes that all tokens are kept.
  QUIRE_ASSIGN_OR_RETURN(const std::optional<double> top_k, Number(root, "top_k", -1, kMaxInt));
  if (top_k.has_value()) defaults.top_k = *top_k < 0 || *top_k > vocab_size ? 0 : static_cast<int>(*top_k);
  QUIRE_ASSIGN_OR_RETURN(const std::optional<double> max_tokens, Number(root, "max_new_tokens", 1, kMaxInt));
  if (max_tokens.has_value()) defaults.max_tokens = static_cast<int>(*max_tokens);
  return defaults;
}

}  // namespace quire
