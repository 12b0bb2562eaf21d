// SPDX-License-Identifier: Apache-2.0

#include "tests/grammar/trial_vocabulary.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "tests/random.h"

namespace quire::grammar {
namespace {

constexpr const char* kPieces[] = {"{\"",   "\":",  "\": ", "\",", "\", \"", "\"}",  "},",  "]",    "[\"",
                                   "[[",    "]]",   "}}",   "\n",  "\n  ",   "\n\n", "  ",  "    ", "true",
                                   "false", "null", "name", "\\n", "\\u00",  "://",  "();", ".\"",  "\":\"",
                                   "{}",    "[]",   "[{",   "}]",  "-1",     "0.",   "e-",  "--"};

std::string Word(Random* random) {
  const int kind = random->Below(10);
  std::string word = random->OneIn(2) ? " " : "";
  if (kind == 0) return word + std::to_string(random->Below(1000));
  if (kind <= 2) {
    const int first = kind == 1 ? 0xA1 : 0x4E00;
    std::string text;
    for (int i = random->Between(1, 3); i > 0; --i) {
      AppendUtf8(static_cast<char32_t>(first + random->Below(kind == 1 ? 900 : 3000)), &text);
    }
    // Vocabularies of bytes also have parts of characters.
    return random->OneIn(4) ? text.substr(0, text.size() - 1) : text;
  }
  if (kind == 3) {
    constexpr char kMarks[] = "\"{}[]:,.-/\\()<>=+*'!?#_ ";
    for (int i = random->Between(1, 4); i > 0; --i) word += kMarks[random->Below(sizeof(kMarks) - 1)];
    return word;
  }
  for (int i = random->Between(1, 9); i > 0; --i) word += static_cast<char>('a' + random->Below(26));
  return word;
}

}  // namespace

std::shared_ptr<const TokenTable> TrialVocabulary(int size, uint64_t seed) {
  Random random(seed);
  std::vector<std::string> tokens = {"", ""};
  std::set<std::string> known;
  const auto add = [&](std::string token) {
    if (static_cast<int>(tokens.size()) < size && known.insert(token).second) tokens.push_back(std::move(token));
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (const char* piece : kPieces) add(piece);
  while (static_cast<int>(tokens.size()) < size) add(Word(&random));
  return std::make_shared<TokenTable>(std::move(tokens), std::vector<TokenId>{1});
}

}  // namespace quire::grammar
