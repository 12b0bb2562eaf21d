#include "kv_manager/tokenizer/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "kv_manager/tokenizer/json_value.h"

namespace quire {
namespace {

// A token is its content or an object with a "content".
absl::Status ParseToken(const JsonValue& json, std::string_view key, std::optional<std::string>* token) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, json.Find(key));
  if (member.is_null()) return absl::OkStatus();
  if (member.raw().is_object()) {
    QUIRE_ASSIGN_OR_RETURN(*token, member.String("content"));
  } else {
    QUIRE_ASSIGN_OR_RETURN(*token, member.AsString());
  }
  return absl::OkStatus();
}

absl::Status ParseFlag(const JsonValue& json, std::string_view key, std::optional<bool>* flag) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue member, json.Find(key));
  if (member.is_null()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(*flag, member.AsBool());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerConfig> TokenizerConfig::Parse(std::string_view json) {
  TokenizerConfig config;
  if (json.empty()) return config;
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(json, "tokenizer_config.json"));
  const JsonValue root(document, "tokenizer_config.json: ");
  QUIRE_RETURN_IF_ERROR(ParseToken(root, "bos_token", &config.bos_token));
  QUIRE_RETURN_IF_ERROR(ParseToken(root, "eos_token", &config.eos_token));
  QUIRE_RETURN_IF_ERROR(ParseFlag(root, "add_bos_token", &config.add_bos_token));
  QUIRE_RETURN_IF_ERROR(ParseFlag(root, "add_eos_token", &config.add_eos_token));
  return config;
}

}  // namespace quire
