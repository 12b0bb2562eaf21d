// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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

// Reads one entry of added_tokens_decoder. Flags that are missing have the values of the `tokenizers` library.
absl::StatusOr<AddedToken> ParseAddedToken(const JsonValue& json, const std::string& key) {
  AddedToken token;
  int id;
  if (!absl::SimpleAtoi(key, &id) || id < 0 || id > kMaxTokenId || absl::StrCat(id) != key) {
    return json.Error(absl::StrCat("the key must be a token id of 0 to ", kMaxTokenId));
  }
  token.id = static_cast<TokenId>(id);
  QUIRE_ASSIGN_OR_RETURN(token.content, json.String("content"));
  QUIRE_ASSIGN_OR_RETURN(token.single_word, json.BoolOr("single_word", false));
  QUIRE_ASSIGN_OR_RETURN(token.lstrip, json.BoolOr("lstrip", false));
  QUIRE_ASSIGN_OR_RETURN(token.rstrip, json.BoolOr("rstrip", false));
  QUIRE_ASSIGN_OR_RETURN(token.special, json.BoolOr("special", false));
  QUIRE_ASSIGN_OR_RETURN(token.normalized, json.BoolOr("normalized", !token.special));
  return token;
}

absl::Status ParseAddedTokens(const JsonValue& root, TokenizerConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue tokens, root.Find("added_tokens_decoder"));
  if (tokens.is_null()) return absl::OkStatus();
  if (!tokens.raw().is_object()) return tokens.Error("expected an object");
  for (const auto& [key, value] : tokens.raw().items()) {
    QUIRE_ASSIGN_OR_RETURN(AddedToken token, ParseAddedToken(tokens.Child(value, key), key));
    config->added_tokens.push_back(std::move(token));
  }
  std::sort(config->added_tokens.begin(), config->added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return absl::OkStatus();
}

// Adds the names of the special tokens. additional_special_tokens is an array; transformers 5 calls it
// extra_special_tokens, which may be an object with a name for each token.
absl::Status ParseSpecialTokens(const JsonValue& root, TokenizerConfig* config) {
  for (const char* key : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    std::optional<std::string> token;
    QUIRE_RETURN_IF_ERROR(ParseToken(root, key, &token));
    if (token.has_value()) config->special_tokens.push_back(*std::move(token));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    QUIRE_ASSIGN_OR_RETURN(const JsonValue list, root.Find(key));
    if (list.is_null()) continue;
    if (!list.raw().is_array() && !list.raw().is_object()) return list.Error("expected an array");
    for (const auto& [name, value] : list.raw().items()) {
      const JsonValue element = list.Child(value, name);
      QUIRE_ASSIGN_OR_RETURN(const std::string_view token,
                             value.is_object() ? element.String("content") : element.AsString());
      config->special_tokens.emplace_back(token);
    }
  }
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
  QUIRE_RETURN_IF_ERROR(ParseAddedTokens(root, &config));
  QUIRE_RETURN_IF_ERROR(ParseSpecialTokens(root, &config));
  return config;
}

}  // namespace quire
