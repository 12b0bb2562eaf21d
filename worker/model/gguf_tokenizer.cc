// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_tokenizer.h"

#include <bit>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_byte_pairs.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_vocabulary.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTemplate = "tokenizer.chat_template";

// Writes fields of a protobuf message.
class ProtoWriter {
 public:
  void AddVarint(int field, uint64_t value) {
    Varint(static_cast<uint64_t>(field) << 3);
    Varint(value);
  }
  void AddBytes(int field, std::string_view bytes) {
    constexpr uint64_t kLengthDelimited = 2;
    Varint(static_cast<uint64_t>(field) << 3 | kLengthDelimited);
    Varint(bytes.size());
    bytes_.append(bytes);
  }
  void AddFloat(int field, float value) {
    constexpr uint64_t kFixed32 = 5;
    Varint(static_cast<uint64_t>(field) << 3 | kFixed32);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift & 0xff));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// The message TrainerSpec of sentencepiece_model.proto.
std::string TrainerSpec(const GgufVocabulary& vocabulary, bool has_bytes) {
  constexpr uint64_t kBytePairEncoding = 2;
  ProtoWriter spec;
  spec.AddVarint(3, kBytePairEncoding);                                       // model_type
  spec.AddVarint(35, has_bytes ? 1 : 0);                                      // byte_fallback
  if (vocabulary.bos) spec.AddBytes(46, vocabulary.tokens[*vocabulary.bos]);  // bos_piece
  if (vocabulary.eos) spec.AddBytes(47, vocabulary.tokens[*vocabulary.eos]);  // eos_piece
  return spec.bytes();
}

absl::StatusOr<std::string> NormalizerSpec(const GgufFields& fields) {
  QUIRE_ASSIGN_OR_RETURN(const bool adds_prefix, fields.Bool("tokenizer.ggml.add_space_prefix", true));
  QUIRE_ASSIGN_OR_RETURN(const bool removes_spaces, fields.Bool("tokenizer.ggml.remove_extra_whitespaces", false));
  ProtoWriter spec;
  spec.AddBytes(1, "identity");
  spec.AddVarint(3, adds_prefix ? 1 : 0);     // add_dummy_prefix
  spec.AddVarint(4, removes_spaces ? 1 : 0);  // remove_extra_whitespaces
  spec.AddVarint(5, 1);                       // escape_whitespaces
  return spec.bytes();
}

// Writes a ModelProto of SentencePiece for a tokenizer "llama".
absl::StatusOr<std::string> SentencePieceModel(const GgufFields& fields, const GgufVocabulary& vocabulary) {
  constexpr const char* kScores = "tokenizer.ggml.scores";
  using Type = GgufVocabulary::Type;
  if (!fields.Has("tokenizer.ggml.token_type")) return fields.Bad("tokenizer.ggml.token_type", "an array of numbers");
  QUIRE_ASSIGN_OR_RETURN(const std::vector<double> scores, fields.Numbers(kScores));
  if (scores.size() != vocabulary.tokens.size()) {
    return fields.Bad(kScores, absl::StrCat("an array of ", vocabulary.tokens.size(), " numbers"));
  }
  ProtoWriter model;
  bool has_bytes = false;
  for (size_t i = 0; i < scores.size(); ++i) {
    const Type type = vocabulary.types[i] == Type::kUndefined ? Type::kNormal : vocabulary.types[i];
    has_bytes |= type == Type::kByte;
    std::string text(vocabulary.tokens[i]);
    // llama.cpp stores user-defined tokens as they appear in a text. SentencePiece replaces spaces in the text.
    if (type == Type::kUserDefined) text = absl::StrReplaceAll(text, {{" ", "\u2581"}});
    ProtoWriter piece;
    piece.AddBytes(1, text);
    piece.AddFloat(2, static_cast<float>(scores[i]));
    piece.AddVarint(3, static_cast<uint64_t>(type));
    model.AddBytes(1, piece.bytes());
  }
  model.AddBytes(2, TrainerSpec(vocabulary, has_bytes));
  QUIRE_ASSIGN_OR_RETURN(const std::string normalizer, NormalizerSpec(fields));
  model.AddBytes(3, normalizer);
  return model.bytes();
}

// Adds the templates with names, such as "tool_use", to tokenizer_config.json. `main_template` is that without a name.
// llama.cpp finds them by their keys. Its scripts also write tokenizer.chat_templates, a list of the names.
absl::Status AddNamedTemplates(const GgufContents& contents, const std::string& main_template, json* config) {
  const GgufFields fields(contents);
  const std::string prefix = absl::StrCat(kTemplate, ".");
  std::set<std::string> names;
  QUIRE_ASSIGN_OR_RETURN(const auto listed, fields.Strings("tokenizer.chat_templates"));
  for (const std::string_view name : listed) names.emplace(name);
  for (const auto& [key, value] : contents.metadata) {
    if (absl::StartsWith(key, prefix)) names.insert(key.substr(prefix.size()));
  }
  json templates = json::array();
  for (const std::string& name : names) {
    QUIRE_ASSIGN_OR_RETURN(const std::string text, fields.String(prefix + name));
    templates.push_back({{"name", name}, {"template", text}});
  }
  if (templates.empty()) return absl::OkStatus();
  if (!main_template.empty()) templates.push_back({{"name", "default"}, {"template", main_template}});
  (*config)["chat_template"] = std::move(templates);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<TokenizerFile>> GgufTokenizerFiles(const GgufContents& contents) {
  const GgufFields fields(contents);
  std::vector<TokenizerFile> files;
  QUIRE_ASSIGN_OR_RETURN(const std::string kind, fields.String(kModel, "none"));
  if (kind == "none" || kind == "no_vocab") return files;
  if (kind != "gpt2" && kind != "llama") return fields.Bad(kModel, "gpt2 or llama");
  QUIRE_ASSIGN_OR_RETURN(const GgufVocabulary vocabulary, ReadGgufVocabulary(fields));
  QUIRE_ASSIGN_OR_RETURN(const std::string pre_tokenizer, fields.String("tokenizer.ggml.pre", ""));
  const bool adds_by_default = kind == "llama" || AddsBosByDefault(pre_tokenizer);
  QUIRE_ASSIGN_OR_RETURN(const bool adds_bos, fields.Bool("tokenizer.ggml.add_bos_token", adds_by_default));
  QUIRE_ASSIGN_OR_RETURN(const bool adds_eos, fields.Bool("tokenizer.ggml.add_eos_token", false));
  if (kind == "gpt2") {
    QUIRE_ASSIGN_OR_RETURN(std::string text, BytePairTokenizerJson(fields, vocabulary, adds_bos, adds_eos));
    files.push_back({"tokenizer.json", std::move(text)});
  } else {
    QUIRE_ASSIGN_OR_RETURN(std::string bytes, SentencePieceModel(fields, vocabulary));
    files.push_back({"tokenizer.model", std::move(bytes)});
  }
  // The manager's errors name keys of a GGUF file in place of the files that are made here.
  json config = {{"made_from", "gguf"}, {"add_bos_token", adds_bos}, {"add_eos_token", adds_eos}};
  for (const auto& [name, id] :
       {std::pair("bos_token", vocabulary.bos), std::pair("eos_token", vocabulary.eos),
        std::pair("unk_token", vocabulary.unknown), std::pair("pad_token", vocabulary.padding)})
    if (id) config[name] = std::string(vocabulary.tokens[*id]);
  QUIRE_ASSIGN_OR_RETURN(const std::string chat_template, fields.String(kTemplate, ""));
  QUIRE_RETURN_IF_ERROR(AddNamedTemplates(contents, chat_template, &config));
  const bool has_named = config.contains("chat_template");
  files.push_back({"tokenizer_config.json", config.dump()});
  if (!chat_template.empty() && !has_named) files.push_back({"chat_template.jinja", chat_template});
  return files;
}

}  // namespace quire
