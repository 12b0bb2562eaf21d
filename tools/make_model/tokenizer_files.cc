// SPDX-License-Identifier: Apache-2.0

#include "tools/make_model/tokenizer_files.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace quire::make_model {
namespace {

using nlohmann::ordered_json;

std::string Utf8(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// The visible character that represents a byte in byte-level vocabularies (GPT-2): itself if printable in Latin-1,
// otherwise the next free code point from 256 up. So the space is U+0120.
std::string ByteCharacter(int byte) {
  const auto is_visible = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b != 173); };
  if (is_visible(byte)) return Utf8(byte);
  int code_point = 256;
  for (int b = 0; b < byte; ++b) code_point += is_visible(b) ? 0 : 1;
  return Utf8(code_point);
}

ordered_json SpecialToken(int id, const char* content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

}  // namespace

std::string TokenizerJson(int vocab) {
  ordered_json tokens = ordered_json::object();
  tokens["<s>"] = kBosToken;
  tokens["</s>"] = kEosToken;
  for (int byte = 0; byte < 256; ++byte) tokens[ByteCharacter(byte)] = kFirstByteToken + byte;
  // ordered_json finds keys one by one: thousands are appended as text instead.
  std::string words;
  for (int id = kMinVocab; id < vocab; ++id) absl::StrAppend(&words, ",\"", ByteCharacter(' '), "w", id, "\":", id);
  std::string vocabulary = tokens.dump();
  vocabulary.insert(vocabulary.size() - 1, words);

  const ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const ordered_json model = {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", "@vocabulary"},
                              {"merges", ordered_json::array()}};
  const ordered_json root = {{"version", "1.0"},
                             {"truncation", nullptr},
                             {"padding", nullptr},
                             {"added_tokens", {SpecialToken(kBosToken, "<s>"), SpecialToken(kEosToken, "</s>")}},
                             {"normalizer", nullptr},
                             {"pre_tokenizer", byte_level},
                             {"post_processor", nullptr},
                             {"decoder", byte_level},
                             {"model", model}};
  std::string text = root.dump();
  const std::string placeholder = "\"@vocabulary\"";
  return text.replace(text.find(placeholder), placeholder.size(), vocabulary) + "\n";
}

std::string TokenizerConfigJson(int context) {
  const ordered_json root = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                             {"bos_token", "<s>"},
                             {"eos_token", "</s>"},
                             {"clean_up_tokenization_spaces", false},
                             {"model_max_length", context}};
  return root.dump(1) + "\n";
}

}  // namespace quire::make_model
