// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer_json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/json_reader.h"
#include "base/status.h"
#include "kv_manager/tokenizer/bpe.h"
#include "kv_manager/tokenizer/json_value.h"
#include "kv_manager/tokenizer/unigram.h"

namespace quire {
namespace {

absl::StatusOr<TokenId> ParseId(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const int64_t id, json.AsInteger());
  if (id < 0 || id > kMaxTokenId) return json.Error(absl::StrCat("token id is ", id, ", ids are 0 to ", kMaxTokenId));
  return static_cast<TokenId>(id);
}

absl::Status AtPath(const JsonValue& json, const absl::Status& status) {
  return json.Error(std::string(status.message()));
}

// Walks the entries without building a JsonValue for each of them, because vocabularies and merges have hundreds of
// thousands of entries.
absl::StatusOr<Vocabulary> ParseBpeVocabulary(const JsonValue& json) {
  if (!json.raw().is_object()) return json.Error("expected an object");
  std::vector<std::pair<std::string, TokenId>> pieces;
  pieces.reserve(json.raw().size());
  for (const auto& [piece, id_json] : json.raw().items()) {
    QUIRE_ASSIGN_OR_RETURN(const TokenId id, ParseId(json.Child(id_json, piece)));
    pieces.emplace_back(piece, id);
  }
  if (pieces.empty()) return json.Error("is empty");
  Vocabulary vocabulary;
  const absl::Status status = vocabulary.Assign(std::move(pieces));
  if (!status.ok()) return AtPath(json, status);
  return vocabulary;
}

absl::StatusOr<std::vector<Bpe::Merge>> ParseMerges(const JsonValue& json) {
  if (!json.raw().is_array()) return json.Error("expected an array");
  std::vector<Bpe::Merge> merges;
  merges.reserve(json.raw().size());
  for (const nlohmann::json& entry : json.raw()) {
    const auto bad = [&] { return json.Error(absl::StrCat("entry ", merges.size(), " is not a pair of tokens")); };
    if (entry.is_string()) {
      const std::string& line = *entry.get_ptr<const std::string*>();
      if (line.rfind("#version", 0) == 0) continue;
      std::pair<std::string, std::string> merge = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      if (merge.first.empty() || merge.second.empty() || merge.second.find(' ') != std::string::npos) return bad();
      merges.push_back(std::move(merge));
    } else {
      if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_string()) return bad();
      merges.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
    }
  }
  return merges;
}

absl::StatusOr<std::unique_ptr<TokenModel>> ParseBpe(const JsonValue& json) {
  QUIRE_ASSIGN_OR_RETURN(const JsonValue dropout, json.Find("dropout"));
  if (!dropout.is_null() && dropout.raw() != 0) return dropout.Error("must be null: encoding is deterministic");
  Bpe::Options options;
  QUIRE_ASSIGN_OR_RETURN(options.unk_token, json.StringOr("unk_token", ""));
  QUIRE_ASSIGN_OR_RETURN(options.fuse_unk, json.BoolOr("fuse_unk", false));
  QUIRE_ASSIGN_OR_RETURN(options.byte_fallback, json.BoolOr("byte_fallback", false));
  QUIRE_ASSIGN_OR_RETURN(options.ignore_merges, json.BoolOr("ignore_merges", false));
  QUIRE_ASSIGN_OR_RETURN(options.continuing_subword_prefix, json.StringOr("continuing_subword_prefix", ""));
  QUIRE_ASSIGN_OR_RETURN(options.end_of_word_suffix, json.StringOr("end_of_word_suffix", ""));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue vocab_json, json.Member("vocab"));
  QUIRE_ASSIGN_OR_RETURN(Vocabulary vocabulary, ParseBpeVocabulary(vocab_json));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue merges_json, json.Member("merges"));
  QUIRE_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> merges, ParseMerges(merges_json));
  absl::StatusOr<std::unique_ptr<Bpe>> bpe = Bpe::Create(std::move(vocabulary), merges, std::move(options));
  if (!bpe.ok()) return AtPath(json, bpe.status());
  return *std::move(bpe);
}

absl::StatusOr<std::unique_ptr<TokenModel>> ParseUnigram(const JsonValue& json) {
  Unigram::Options options;
  QUIRE_ASSIGN_OR_RETURN(const JsonValue unk, json.Find("unk_id"));
  if (!unk.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(options.unk, ParseId(unk));
  }
  QUIRE_ASSIGN_OR_RETURN(options.byte_fallback, json.BoolOr("byte_fallback", false));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue vocab, json.Member("vocab"));
  if (!vocab.raw().is_array() || vocab.raw().empty()) return vocab.Error("expected an array of [token, score]");
  std::vector<std::pair<std::string, TokenId>> pieces;
  std::vector<double> scores;
  for (const nlohmann::json& entry : vocab.raw()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return vocab.Error(absl::StrCat("entry ", scores.size(), " is not [token, score]"));
    }
    if (scores.size() > kMaxTokenId) return vocab.Error(absl::StrCat("has more than ", scores.size(), " tokens"));
    pieces.emplace_back(entry[0].get<std::string>(), static_cast<TokenId>(scores.size()));
    scores.push_back(entry[1].get<double>());
  }
  Vocabulary vocabulary;
  const absl::Status status = vocabulary.Assign(std::move(pieces));
  if (!status.ok()) return AtPath(vocab, status);
  absl::StatusOr<std::unique_ptr<Unigram>> unigram = Unigram::Create(std::move(vocabulary), scores, options);
  if (!unigram.ok()) return AtPath(json, unigram.status());
  return *std::move(unigram);
}

absl::StatusOr<std::unique_ptr<TokenModel>> ParseModel(const JsonValue& json) {
  // Files that are older than this field hold a BPE model.
  QUIRE_ASSIGN_OR_RETURN(const std::string_view type, json.StringOr("type", "BPE"));
  if (type == "BPE") return ParseBpe(json);
  if (type == "Unigram") return ParseUnigram(json);
  return json.Error(absl::StrCat("model type \"", std::string(type), "\" is not supported"));
}

// Adds what tokenizer_config.json has in addition (see tokenizer_json.h).
absl::Status AddTokensOfConfig(const TokenizerConfig& config, const Vocabulary& vocabulary,
                               std::vector<AddedToken>* tokens) {
  absl::flat_hash_map<std::string, size_t> index_of;  // The key is the content.
  absl::flat_hash_map<TokenId, std::string> content_of;
  for (size_t i = 0; i < tokens->size(); ++i) {
    index_of.emplace((*tokens)[i].content, i);
    content_of.emplace((*tokens)[i].id, (*tokens)[i].content);
  }
  const auto bad = [&](const AddedToken& token, std::string_view what) {
    const char* const place = config.is_legacy ? "added_tokens.json: " : "tokenizer_config.json: added_tokens_decoder.";
    return absl::InvalidArgumentError(
        absl::StrCat(place, token.id, ": is \"", token.content, "\", but ", std::string(what)));
  };
  const auto add = [&](AddedToken token) {
    index_of.emplace(token.content, tokens->size());
    content_of.emplace(token.id, token.content);
    tokens->push_back(std::move(token));
  };
  for (const AddedToken& token : config.added_tokens) {
    const auto found = index_of.find(token.content);
    const TokenId known = found == index_of.end() ? vocabulary.Find(token.content) : (*tokens)[found->second].id;
    if (known != kNoToken && known != token.id) {
      return bad(token, absl::StrCat("tokenizer.json has this token as ", known));
    }
    if (found != index_of.end()) {
      if (!config.is_legacy) (*tokens)[found->second] = token;
      continue;
    }
    const auto other = content_of.find(token.id);
    if (other != content_of.end()) return bad(token, absl::StrCat("tokenizer.json has \"", other->second, "\" there"));
    if (known == kNoToken && vocabulary.Contains(token.id)) {
      return bad(token, absl::StrCat("the vocabulary has \"", vocabulary.piece(token.id), "\" there"));
    }
    add(token);
  }
  for (const std::string& content : config.special_tokens) {
    const TokenId id = vocabulary.Find(content);
    if (content.empty() || index_of.contains(content) || id == kNoToken || content_of.contains(id)) continue;
    add({.id = id, .content = content, .special = true});
  }
  return absl::OkStatus();
}

absl::StatusOr<AddedVocabulary> ParseAddedTokens(const JsonValue& json, const TokenizerConfig& config,
                                                 const Vocabulary& vocabulary, const Normalizer* normalizer) {
  std::vector<AddedToken> tokens;
  std::vector<JsonValue> elements;
  if (!json.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(elements, json.AsArray());
  }
  for (const JsonValue& element : elements) {
    AddedToken token;
    QUIRE_ASSIGN_OR_RETURN(const JsonValue id, element.Member("id"));
    QUIRE_ASSIGN_OR_RETURN(token.id, ParseId(id));
    QUIRE_ASSIGN_OR_RETURN(token.content, element.String("content"));
    QUIRE_ASSIGN_OR_RETURN(token.single_word, element.Bool("single_word"));
    QUIRE_ASSIGN_OR_RETURN(token.lstrip, element.Bool("lstrip"));
    QUIRE_ASSIGN_OR_RETURN(token.rstrip, element.Bool("rstrip"));
    QUIRE_ASSIGN_OR_RETURN(token.normalized, element.Bool("normalized"));
    QUIRE_ASSIGN_OR_RETURN(token.special, element.Bool("special"));
    const TokenId known = vocabulary.Find(token.content);
    if (known != kNoToken && known != token.id) {
      return id.Error(absl::StrCat("is ", token.id, ", but the vocabulary has \"", token.content, "\" as ", known));
    }
    if (known == kNoToken && vocabulary.Contains(token.id)) {
      return id.Error(absl::StrCat("is ", token.id, ", which the vocabulary has as \"", vocabulary.piece(token.id),
                                   "\", not \"", token.content, "\""));
    }
    tokens.push_back(std::move(token));
  }
  QUIRE_RETURN_IF_ERROR(AddTokensOfConfig(config, vocabulary, &tokens));
  absl::StatusOr<AddedVocabulary> added = AddedVocabulary::Create(std::move(tokens), normalizer);
  if (!added.ok()) return AtPath(json, added.status());
  return added;
}

// Makes the parts as Transformers' LlamaTokenizer does, whatever the file says. It is not taken for models of bytes.
void MakeLlamaParts(SpacePrefix prefix, nlohmann::json* document) {
  using nlohmann::json;
  const char* const scheme = prefix == SpacePrefix::kFirstPart ? "first"
                             : prefix == SpacePrefix::kNone    ? "never"
                                                               : "always";
  (*document)["normalizer"] = nullptr;
  (*document)["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", false}};
  json decoders = json::array({{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                               {{"type", "ByteFallback"}},
                               {{"type", "Fuse"}}});
  if (prefix != SpacePrefix::kNone) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  (*document)["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  json& model = (*document)["model"];
  json made = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}};
  for (const char* name : {"vocab", "merges"}) made[name] = std::move(model[name]);
  model = std::move(made);
}

}  // namespace

absl::StatusOr<TokenizerJson> TokenizerJson::Parse(std::string_view text, const TokenizerConfig& config,
                                                   SpacePrefix prefix) {
  QUIRE_ASSIGN_OR_RETURN(nlohmann::json document, ReadJson<nlohmann::json>(text, "tokenizer.json"));
  const bool is_bpe = document.is_object() && document.contains("model") && document["model"].is_object() &&
                      (!document["model"].contains("type") || document["model"]["type"] == "BPE");
  if (prefix != SpacePrefix::kAsInFile && is_bpe && text.find("\"ByteLevel\"") == text.npos) {
    MakeLlamaParts(prefix, &document);
  }
  const JsonValue root(document, "tokenizer.json: ");
  TokenizerJson parts;
  QUIRE_ASSIGN_OR_RETURN(const JsonValue normalizer, root.Find("normalizer"));
  if (!normalizer.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::Parse(normalizer));
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonValue pre_tokenizer, root.Find("pre_tokenizer"));
  if (!pre_tokenizer.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::Parse(pre_tokenizer));
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonValue model, root.Member("model"));
  QUIRE_ASSIGN_OR_RETURN(parts.model, ParseModel(model));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue post_processor, root.Find("post_processor"));
  if (!post_processor.is_null()) {
    QUIRE_ASSIGN_OR_RETURN(parts.post_processor, PostProcessor::Parse(post_processor));
  }
  QUIRE_ASSIGN_OR_RETURN(const JsonValue decoder, root.Find("decoder"));
  QUIRE_ASSIGN_OR_RETURN(parts.decoder, Decoder::Parse(decoder));
  QUIRE_ASSIGN_OR_RETURN(const JsonValue added, root.Find("added_tokens"));
  QUIRE_ASSIGN_OR_RETURN(parts.added,
                         ParseAddedTokens(added, config, parts.model->vocabulary(), parts.normalizer.get()));
  return parts;
}

}  // namespace quire
