// SPDX-License-Identifier: Apache-2.0

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/added_vocabulary.h"
#include "kv_manager/tokenizer/normalizer.h"

namespace quire {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

// Returns the pieces of a text. A token is written as #id.
Strings Extract(const std::vector<AddedToken>& tokens, const std::string& text, bool parses_special = true,
                const Normalizer* normalizer = nullptr) {
  const auto added = AddedVocabulary::Create(tokens, normalizer);
  if (!added.ok()) return {std::string(added.status().message())};
  const auto pieces = added->Extract(text, normalizer, parses_special);
  EXPECT_TRUE(pieces.ok()) << pieces.status();
  Strings found;
  for (const TextPiece& piece : *pieces) {
    found.push_back(piece.token == kNoToken ? piece.text : "#" + std::to_string(piece.token));
  }
  return found;
}

TEST(AddedVocabularyTest, TheLeftmostAndOfThoseTheLongestMatches) {
  EXPECT_EQ(Extract({{.id = 1, .content = "<a"}, {.id = 2, .content = "<a>"}, {.id = 3, .content = ">b"}}, "x<a>b<a"),
            Strings({"x", "#2", "b", "#1"}));
}

TEST(AddedVocabularyTest, StrippedSpacesGoWithTheToken) {
  EXPECT_EQ(Extract({{.id = 1, .content = "M", .lstrip = true}}, "a \tM b"), Strings({"a", "#1", " b"}));
  EXPECT_EQ(Extract({{.id = 1, .content = "M", .rstrip = true}}, "a M\u3000b"), Strings({"a ", "#1", "b"}));
}

TEST(AddedVocabularyTest, ASingleWordHasNoWordCharacterNextToIt) {
  EXPECT_EQ(Extract({{.id = 1, .content = "an", .single_word = true}}, "an ant, an\u0301 (an)"),
            Strings({"#1", " ant, an\u0301 (", "#1", ")"}));
}

TEST(AddedVocabularyTest, SpecialTokensAreTextWhenTheyAreNotParsed) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<t>"}};
  EXPECT_EQ(Extract(tokens, "<s><t>", /*parses_special=*/true), Strings({"#1", "#2"}));
  EXPECT_EQ(Extract(tokens, "<s><t>", /*parses_special=*/false), Strings({"<s>", "#2"}));
}

TEST(AddedVocabularyTest, NormalizedTokensAreFoundInTheNormalizedText) {
  const json document = json::parse(R"({"type":"Lowercase"})");
  const auto lowercase = Normalizer::Parse(JsonValue(document, ""));
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "Loud", .normalized = true}, {.id = 2, .content = "Is"}};
  EXPECT_EQ(Extract(tokens, "LOUD is Is", true, lowercase->get()), Strings({"#1", " is ", "#2"}));
}

TEST(AddedVocabularyTest, DuplicatesAndEmptyTokensAreRefused) {
  EXPECT_EQ(Extract({{.id = 1, .content = "a"}, {.id = 1, .content = "b"}}, ""),
            Strings({"two added tokens have id 1"}));
  EXPECT_EQ(Extract({{.id = 1, .content = "a"}, {.id = 2, .content = "a"}}, ""),
            Strings({"added token \"a\" is given twice"}));
  EXPECT_EQ(Extract({{.id = 1, .content = ""}}, ""), Strings({"added token 1 is empty"}));
}

}  // namespace
}  // namespace quire
