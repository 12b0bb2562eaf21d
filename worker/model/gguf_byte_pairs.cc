// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_byte_pairs.h"

#include <iterator>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "nlohmann/json.hpp"
#include "worker/model/json_reader.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr const char* kPreTokenizer = "tokenizer.ggml.pre";
constexpr const char* kMerges = "tokenizer.ggml.merges";

// The expressions of the tokenizers' own tokenizer.json files.
#define QUIRE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define QUIRE_REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
constexpr const char* kLlama3 = QUIRE_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" QUIRE_REST;
constexpr const char* kQwen2Expression = QUIRE_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" QUIRE_REST;
constexpr const char* kTekken =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
#undef QUIRE_CONTRACTIONS
#undef QUIRE_REST
// Words with their contractions, of o200k.
#define QUIRE_ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
constexpr const char* kGpt4o =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" QUIRE_ENDING
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" QUIRE_ENDING
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
#undef QUIRE_ENDING
constexpr const char* kSeed =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// Of DeepSeek V3, in three steps.
constexpr const char* kThreeDigits = "\\p{N}{1,3}";
constexpr const char* kHanAndKana = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+";
constexpr const char* kDeepSeekWords =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
constexpr const char* kDigit = "\\p{N}";

// How a text is cut into words before the merges. The expressions are applied one after the other, each to the pieces
// that the one before it has left.
struct PreTokenizer {
  std::string_view name;  // Value in the file.
  std::vector<const char*> expressions;
  bool ignores_merges = false;  // Whether a word that is a token is not merged from its bytes.
  bool adds_bos = false;        // When the file does not say.
  bool composes = false;        // Whether the text is normalized to NFC.
};

const std::vector<PreTokenizer>& PreTokenizers() {
  static const auto* all = new std::vector<PreTokenizer>{
      {.name = "llama-bpe", .expressions = {kLlama3}, .ignores_merges = true, .adds_bos = true},
      {.name = "llama3", .expressions = {kLlama3}, .ignores_merges = true, .adds_bos = true},
      {.name = "llama-v3", .expressions = {kLlama3}, .ignores_merges = true, .adds_bos = true},
      {.name = "smaug-bpe", .expressions = {kLlama3}},
      {.name = "qwen2", .expressions = {kQwen2Expression}, .composes = true},
      {.name = "deepseek-r1-qwen", .expressions = {kQwen2Expression}},
      {.name = "tekken", .expressions = {kTekken}, .ignores_merges = true, .adds_bos = true},
      {.name = "dbrx", .expressions = {kLlama3}},
      {.name = "glm4", .expressions = {kLlama3}},
      {.name = "chatglm-bpe", .expressions = {kLlama3}},
      {.name = "gpt-4o", .expressions = {kGpt4o}},
      {.name = "seed-coder", .expressions = {kSeed}},
      {.name = "exaone4", .expressions = {kGpt2}},
      {.name = "olmo", .expressions = {kGpt2}},
      {.name = "hunyuan-dense", .expressions = {kThreeDigits, kHanAndKana, kDeepSeekWords}},
      {.name = "starcoder", .expressions = {kDigit, kGpt2}},
      {.name = "refact", .expressions = {kDigit, kGpt2}},
      {.name = "command-r", .expressions = {kDigit, kGpt2}},
      {.name = "smollm", .expressions = {kDigit, kGpt2}},
      {.name = "gpt-2", .expressions = {kGpt2}},
      {.name = "default", .expressions = {"[\\p{P}\\$\\+<=>\\^~\\|]+", kGpt2, "\\p{N}+", "[0-9][0-9][0-9]"}},
  };
  return *all;
}

const PreTokenizer* FindPreTokenizer(const std::string& name) {
  for (const PreTokenizer& one : PreTokenizers()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

std::string Names() {
  std::vector<std::string> names;
  for (const PreTokenizer& one : PreTokenizers()) names.emplace_back(one.name);
  return absl::StrJoin(names, ", ");
}

json PreTokenizerJson(const PreTokenizer& pre_tokenizer) {
  json steps = json::array();
  for (const char* expression : pre_tokenizer.expressions) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The special tokens around a prompt.
json PostProcessorJson(const GgufVocabulary& vocabulary, bool adds_bos, bool adds_eos) {
  json single = json::array(), tokens = json::object();
  const auto add = [&](int64_t id) {
    const std::string name(vocabulary.tokens[id]);
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  };
  if (adds_bos && vocabulary.bos) add(*vocabulary.bos);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (adds_eos && vocabulary.eos) add(*vocabulary.eos);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", tokens}};
}

bool IsAdded(GgufVocabulary::Type type) {
  return type == GgufVocabulary::Type::kControl || type == GgufVocabulary::Type::kUserDefined;
}

}  // namespace

bool AddsBosByDefault(const std::string& pre_tokenizer) {
  const PreTokenizer* found = FindPreTokenizer(pre_tokenizer);
  return found != nullptr && found->adds_bos;
}

absl::StatusOr<std::string> BytePairTokenizerJson(const GgufFields& fields, const GgufVocabulary& vocabulary,
                                                  bool adds_bos, bool adds_eos) {
  QUIRE_ASSIGN_OR_RETURN(const std::string name, fields.String(kPreTokenizer, ""));
  const PreTokenizer* pre_tokenizer = FindPreTokenizer(name);
  if (pre_tokenizer == nullptr) return fields.Bad(kPreTokenizer, absl::StrCat("one of ", Names()));
  json vocab = json::object(), added = json::array();
  std::unordered_set<std::string_view> texts;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const GgufVocabulary::Type type = vocabulary.types[i];
    if (type == GgufVocabulary::Type::kUnused) continue;
    const std::string text(vocabulary.tokens[i]);
    if (!texts.insert(vocabulary.tokens[i]).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens, element ", i, ", is ", Shown(json(text)), ", which occurs before"));
    }
    if (!IsAdded(type)) {
      vocab[text] = i;
      continue;
    }
    added.push_back({{"id", i},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type == GgufVocabulary::Type::kControl}});
  }
  QUIRE_ASSIGN_OR_RETURN(const auto merges, fields.Strings(kMerges));
  json merge_lines = json::array();
  for (const std::string_view merge : merges) merge_lines.push_back(std::string(merge));
  const json document = {
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", pre_tokenizer->composes ? json{{"type", "NFC"}} : json()},
      {"pre_tokenizer", PreTokenizerJson(*pre_tokenizer)},
      {"post_processor", PostProcessorJson(vocabulary, adds_bos, adds_eos)},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
      {"model",
       {{"type", "BPE"},
        {"ignore_merges", pre_tokenizer->ignores_merges},
        {"vocab", std::move(vocab)},
        {"merges", std::move(merge_lines)}}}};
  return document.dump();
}

}  // namespace quire
