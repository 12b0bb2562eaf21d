// SPDX-License-Identifier: Apache-2.0

// The other side of `tools/goldens/tokenizer_goldens.py fuzz`: encodes and decodes a file of cases and writes what came
// out.
//
//   tokenize_file encode DIRECTORY IN OUT   IN: strings. OUT per string: tokens (all special tokens), tokens (none
//                                           added), tokens (none added, none parsed); an error is one token -1
//   tokenize_file decode DIRECTORY IN OUT   IN: token lists. OUT per list: text (special tokens skipped), text (kept)
//
// DIRECTORY holds a tokenizer.json or a tokenizer.model. Strings and lists are a uint32 count and their bytes or int32
// tokens, all little-endian.

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "kv_manager/tokenizer/detokenizer.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void AppendCount(size_t count, std::string* out) {
  const auto value = static_cast<uint32_t>(count);
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Cuts the next counted run of `width`-byte items off `*in`.
std::string_view NextItems(std::string_view* in, size_t width) {
  uint32_t count = 0;
  std::memcpy(&count, in->data(), sizeof(count));
  const std::string_view items = in->substr(sizeof(count), count * width);
  in->remove_prefix(sizeof(count) + items.size());
  return items;
}

void Encode(const Tokenizer& tokenizer, std::string_view in, std::string* out) {
  while (!in.empty()) {
    const std::string_view text = NextItems(&in, 1);
    for (const EncodeOptions& options : {EncodeOptions{true, true}, {false, true}, {false, false}}) {
      const auto encoded = tokenizer.Encode(text, options);
      const std::vector<TokenId> tokens = encoded.ok() ? *encoded : std::vector<TokenId>{-1};
      AppendCount(tokens.size(), out);
      out->append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId));
    }
  }
}

void Decode(const Tokenizer& tokenizer, std::string_view in, std::string* out) {
  while (!in.empty()) {
    const std::string_view bytes = NextItems(&in, sizeof(TokenId));
    std::vector<TokenId> tokens(bytes.size() / sizeof(TokenId));
    std::memcpy(tokens.data(), bytes.data(), bytes.size());
    for (const bool skip_special_tokens : {true, false}) {
      StreamingDetokenizer detokenizer(tokenizer, {}, skip_special_tokens);
      std::string text;
      for (const TokenId token : tokens) text += detokenizer.Push(token);
      text += detokenizer.Finish();
      AppendCount(text.size(), out);
      out->append(text);
    }
  }
}

int Run(const std::string& command, const std::string& directory, const std::string& in, const std::string& out) {
  TokenizerFiles files;
  files.tokenizer_json = ReadFile(directory + "/tokenizer.json");
  files.tokenizer_model = ReadFile(directory + "/tokenizer.model");
  files.tokenizer_config_json = ReadFile(directory + "/tokenizer_config.json");
  const auto tokenizer = Tokenizer::Load(files);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  std::string result;
  (command == "encode" ? Encode : Decode)(**tokenizer, ReadFile(in), &result);
  std::ofstream(out, std::ios::binary) << result;
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: tokenize_file encode|decode DIRECTORY IN OUT\n";
    return 2;
  }
  return quire::Run(argv[1], argv[2], argv[3], argv[4]);
}
