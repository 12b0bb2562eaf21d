// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/tokenizer.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

// Letters and a space, two tokens of the vocabulary that are no added tokens, and one added token.
TokenizerFiles Files(const json& config) {
  const json file = {
      {"model",
       {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"<x>", 2}, {"<e>", 3}, {" ", 5}}}, {"merges", json::array()}}},
      {"added_tokens", json::array({{{"id", 4},
                                     {"content", "<s>"},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false},
                                     {"special", true}}})}};
  return {.tokenizer_json = file.dump(), .tokenizer_model = "", .tokenizer_config_json = config.dump()};
}

std::unique_ptr<Tokenizer> Load(const json& config) {
  auto tokenizer = Tokenizer::Load(Files(config));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

std::string ErrorOf(const json& config) {
  return std::string(Tokenizer::Load(Files(config)).status().message());
}

TEST(TokenizerConfigTest, AddedTokensDecoderAddsTokens) {
  const auto tokenizer =
      Load({{"added_tokens_decoder",
             {{"10", {{"content", "<v>"}, {"special", false}}}, {"9", {{"content", "<u>"}, {"special", true}}}}}});
  EXPECT_THAT(*tokenizer->Encode("a<u>b<v><s>", {}), ElementsAre(0, 9, 1, 10, 4));
  EXPECT_TRUE(tokenizer->IsSpecial(9));
  EXPECT_FALSE(tokenizer->IsSpecial(10));
  EXPECT_EQ(tokenizer->vocab_size(), 11u);
  EXPECT_EQ(tokenizer->Decode({9, 0}, /*skip_special_tokens=*/true), "a");
}

TEST(TokenizerConfigTest, AddedTokensDecoderReplacesFlags) {
  const auto plain = Load(json::object());
  EXPECT_TRUE(plain->IsSpecial(4));
  EXPECT_THAT(*plain->Encode("a <s>", {}), ElementsAre(0, 5, 4));
  const auto changed =
      Load({{"added_tokens_decoder", {{"4", {{"content", "<s>"}, {"special", false}, {"lstrip", true}}}}}});
  EXPECT_FALSE(changed->IsSpecial(4));
  EXPECT_THAT(*changed->Encode("a <s>", {}), ElementsAre(0, 4));
}

TEST(TokenizerConfigTest, NamedSpecialTokensOfTheVocabularyAreSpecial) {
  const auto tokenizer =
      Load({{"additional_special_tokens", {"<x>", "<nowhere>"}}, {"eos_token", {{"content", "<e>"}}}});
  EXPECT_THAT(*tokenizer->Encode("a<x>b<e>", {}), ElementsAre(0, 2, 1, 3));
  EXPECT_TRUE(tokenizer->IsSpecial(2));
  EXPECT_TRUE(tokenizer->IsSpecial(3));
  EXPECT_FALSE(tokenizer->IsSpecial(0));
  EXPECT_EQ(tokenizer->vocab_size(), 6u) << "a token without an id in the vocabulary is none";
  EncodeOptions as_text;
  as_text.parse_special_tokens = false;
  EXPECT_THAT(*tokenizer->Encode("a<x>b", as_text), ElementsAre(0, 1)) << "the vocabulary lacks the other characters";
  EXPECT_TRUE(Load({{"extra_special_tokens", {{"image_token", "<x>"}}}})->IsSpecial(2));
  EXPECT_FALSE(Load(json::object())->IsSpecial(2));
}

TEST(TokenizerConfigTest, ContradictionsNameBothSides) {
  const auto decoder = [](const char* id, const char* content) {
    return json{{"added_tokens_decoder", {{id, {{"content", content}}}}}};
  };
  EXPECT_THAT(ErrorOf(decoder("7", "<s>")),
              HasSubstr("added_tokens_decoder.7: is \"<s>\", but tokenizer.json has this token as 4"));
  EXPECT_THAT(ErrorOf(decoder("4", "<t>")),
              HasSubstr("added_tokens_decoder.4: is \"<t>\", but tokenizer.json has \"<s>\""));
  EXPECT_THAT(ErrorOf(decoder("1", "<t>")),
              HasSubstr("added_tokens_decoder.1: is \"<t>\", but the vocabulary has \"b\""));
  EXPECT_THAT(ErrorOf(decoder("x", "<t>")), HasSubstr("added_tokens_decoder.x: the key must be a token id of 0 to"));
  EXPECT_THAT(ErrorOf({{"added_tokens_decoder", {1}}}), HasSubstr("added_tokens_decoder: expected an object"));
  EXPECT_THAT(ErrorOf({{"additional_special_tokens", "<x>"}}),
              HasSubstr("additional_special_tokens: expected an array"));
}

}  // namespace
}  // namespace quire
