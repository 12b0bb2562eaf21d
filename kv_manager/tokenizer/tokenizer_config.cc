// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json_reader.h"
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

// An absent file is an empty object.
absl::StatusOr<nlohmann::json> ReadObject(std::string_view text, const char* file) {
  if (text.empty()) return nlohmann::json::object();
  QUIRE_ASSIGN_OR_RETURN(nlohmann::json document, ReadJson<nlohmann::json>(text, file));
  if (!document.is_object()) return InvalidArgument(file, ": expected an object");
  return document;
}

bool IsToken(const nlohmann::json& value) {
  return value.is_string() || (value.is_object() && value.contains("content") && value["content"].is_string());
}

bool HasMembers(const nlohmann::json& object, const char* key) {
  return object.contains(key) && !object[key].empty();
}

// Merges one member of special_tokens_map.json. Lists of further tokens are called additional_special_tokens, or
// extra_special_tokens since version 5 of Transformers. The older name only counts if no other list is there.
absl::Status MergeMember(const JsonValue& value, const std::string& key, nlohmann::json* config) {
  const bool is_list = key == "additional_special_tokens" || key == "extra_special_tokens";
  if (!is_list) {
    if (!value.is_null() && !IsToken(value.raw())) return value.Error("expected a text or an object with \"content\"");
    (*config)[key] = value.raw();
    return absl::OkStatus();
  }
  if (value.raw().is_object()) {
    (*config)[key] = value.raw();
    return absl::OkStatus();
  }
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonValue> tokens, value.AsArray());
  if (key[0] == 'a' &&
      (HasMembers(*config, "additional_special_tokens") || HasMembers(*config, "extra_special_tokens"))) {
    return absl::OkStatus();
  }
  nlohmann::json& merged = (*config)[key];
  if (!merged.is_array()) merged = nlohmann::json::array();
  for (const JsonValue& token : tokens) {
    if (!IsToken(token.raw())) return token.Error("expected a text or an object with \"content\"");
    if (std::find(merged.begin(), merged.end(), token.raw()) == merged.end()) merged.push_back(token.raw());
  }
  return absl::OkStatus();
}

// Reads {"<token>": id, ...}. Such a token is special if another file names it as one.
absl::Status ParseLegacyTokens(std::string_view json, TokenizerConfig* config) {
  constexpr char kFile[] = "added_tokens.json";
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json document, ReadObject(json, kFile));
  const JsonValue root(document, absl::StrCat(kFile, ": "));
  config->is_legacy = true;
  for (const auto& [content, id] : document.items()) {
    const bool is_id = id.is_number_integer() && id >= 0 && id <= kMaxTokenId;
    if (!is_id) return root.Child(id, content).Error(absl::StrCat("expected a token id of 0 to ", kMaxTokenId));
    const auto& special = config->special_tokens;
    const bool is_special = std::find(special.begin(), special.end(), content) != special.end();
    AddedToken token{.id = id.get<TokenId>(), .content = content, .special = is_special};
    token.normalized = !is_special;
    config->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

// Refuses fields with which Transformers would encode texts in another way.
absl::Status CheckSupported(const JsonValue& root) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue splits, root.Find("split_special_tokens"));
  if (!splits.is_null() && splits.raw() != false) return splits.Error("is not false, the only value that is supported");
  QUIRE_ASSIGN_OR_RETURN(const JsonValue files, root.Find("fast_tokenizer_files"));
  if (files.is_null()) return absl::OkStatus();
  QUIRE_ASSIGN_OR_RETURN(const std::vector<JsonValue> names, files.AsArray());
  for (const JsonValue& name : names) {
    if (name.raw() != "tokenizer.json") return name.Error("is not \"tokenizer.json\", the only file that is read");
  }
  return absl::OkStatus();
}

absl::Status ParseSpacePrefix(const JsonValue& root, TokenizerConfig* config) {
  QUIRE_ASSIGN_OR_RETURN(const std::string_view name, root.StringOr("tokenizer_class", ""));
  config->is_llama_class = name == "LlamaTokenizer" || name == "LlamaTokenizerFast";
  QUIRE_RETURN_IF_ERROR(ParseFlag(root, "legacy", &config->legacy));
  QUIRE_ASSIGN_OR_RETURN(config->add_prefix_space, root.BoolOr("add_prefix_space", true));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<nlohmann::json> MergeSpecialTokens(const TokenizerConfigFiles& files) {
  QUIRE_ASSIGN_OR_RETURN(nlohmann::json config, ReadObject(files.tokenizer_config_json, "tokenizer_config.json"));
  if (config.contains("added_tokens_decoder")) return config;
  constexpr char kFile[] = "special_tokens_map.json";
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json map, ReadObject(files.special_tokens_map_json, kFile));
  const JsonValue root(map, absl::StrCat(kFile, ": "));
  for (const auto& [key, value] : map.items()) {
    QUIRE_RETURN_IF_ERROR(MergeMember(root.Child(value, key), key, &config));
  }
  return config;
}

absl::StatusOr<TokenizerConfig> TokenizerConfig::Parse(const TokenizerConfigFiles& files) {
  TokenizerConfig config;
  QUIRE_ASSIGN_OR_RETURN(const nlohmann::json document, MergeSpecialTokens(files));
  const JsonValue root(document, "tokenizer_config.json: ");
  QUIRE_RETURN_IF_ERROR(ParseToken(root, "bos_token", &config.bos_token));
  QUIRE_RETURN_IF_ERROR(ParseToken(root, "eos_token", &config.eos_token));
  QUIRE_RETURN_IF_ERROR(ParseFlag(root, "add_bos_token", &config.add_bos_token));
  QUIRE_RETURN_IF_ERROR(ParseFlag(root, "add_eos_token", &config.add_eos_token));
  QUIRE_RETURN_IF_ERROR(CheckSupported(root));
  QUIRE_RETURN_IF_ERROR(ParseSpacePrefix(root, &config));
  QUIRE_RETURN_IF_ERROR(ParseAddedTokens(root, &config));
  QUIRE_RETURN_IF_ERROR(ParseSpecialTokens(root, &config));
  if (!document.contains("added_tokens_decoder")) {
    QUIRE_RETURN_IF_ERROR(ParseLegacyTokens(files.added_tokens_json, &config));
  }
  std::sort(config.added_tokens.begin(), config.added_tokens.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  return config;
}

SpacePrefix TokenizerConfig::space_prefix(bool is_llama, bool has_json) const {
  if (is_llama && is_llama_class) {
    if (!add_prefix_space) return SpacePrefix::kNone;
    return legacy.value_or(false) ? SpacePrefix::kEveryPart : SpacePrefix::kFirstPart;
  }
  return has_json || legacy.value_or(true) ? SpacePrefix::kAsInFile : SpacePrefix::kFirstPart;
}

}  // namespace quire
