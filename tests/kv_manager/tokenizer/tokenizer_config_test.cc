// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/tokenizer_config.h"

#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

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

TEST(TokenizerConfigTest, FilesOfOlderCheckpointsNameTokens) {
  TokenizerFiles files = Files({{"eos_token", "<x>"}});
  files.special_tokens_map_json = R"({"eos_token": {"content": "<e>"}, "additional_special_tokens": ["<x>"]})";
  files.added_tokens_json = R"({"<u>": 9, "<x>": 2, "<s>": 4})";
  const auto tokenizer = Tokenizer::Load(files);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("a<u><x>", {}), ElementsAre(0, 9, 2));
  EXPECT_FALSE((*tokenizer)->IsSpecial(9));
  EXPECT_TRUE((*tokenizer)->IsSpecial(2));
  EXPECT_TRUE((*tokenizer)->IsSpecial(3));
  EXPECT_TRUE((*tokenizer)->IsSpecial(4)) << "the flags of tokenizer.json stay";
  files.added_tokens_json = R"({"<s>": 7})";
  EXPECT_EQ(Tokenizer::Load(files).status().message(),
            "added_tokens.json: 7: is \"<s>\", but tokenizer.json has this token as 4");
  files.tokenizer_config_json = R"({"added_tokens_decoder": {}})";
  EXPECT_TRUE(Tokenizer::Load(files).ok()) << "the older files do not count";
}

TEST(TokenizerConfigTest, AddedTokensOfATokenizerModelFollowItsPieces) {
  TokenizerFiles files = GoldenFiles("sp_bpe");
  const auto size = static_cast<TokenId>(LoadGolden("sp_bpe")->vocab_size());
  const auto token = [](const char* content, bool special) { return json{{"content", content}, {"special", special}}; };
  const auto load = [&](const json& decoder) {
    files.tokenizer_config_json = json{{"added_tokens_decoder", decoder}}.dump();
    return Tokenizer::Load(files);
  };
  const auto key = [](TokenId id) { return std::to_string(id); };
  const auto tokenizer = load(
      {{"1", token("<s>", true)}, {key(size), token("<|im_start|>", true)}, {key(size + 1), token("<tool>", false)}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto tokens = *(*tokenizer)->Encode("<|im_start|><tool>", {.add_special_tokens = false});
  EXPECT_EQ(tokens.front(), size);
  EXPECT_EQ(tokens.back(), size + 1);
  EXPECT_TRUE((*tokenizer)->IsSpecial(size));
  EXPECT_FALSE((*tokenizer)->IsSpecial(size + 1));
  EXPECT_EQ((*tokenizer)->Decode({size, size + 1}, /*skip_special_tokens=*/true), "<tool>");
  EXPECT_THAT(std::string(load({{key(size + 1), token("<x>", true)}}).status().message()),
              HasSubstr("but there is no token " + key(size)));
  EXPECT_THAT(std::string(load({{"1", token("<x>", true)}}).status().message()),
              HasSubstr("but tokenizer.model has \"<s>\" there"));
  json stripped = token("<x>", true);
  stripped["lstrip"] = true;
  EXPECT_THAT(std::string(load({{key(size), stripped}}).status().message()), HasSubstr("need a tokenizer.json"));
}

TEST(TokenizerConfigTest, FieldsThatDemandAnotherEncodingAreRefused) {
  EXPECT_EQ(ErrorOf({{"split_special_tokens", true}}),
            "tokenizer_config.json: split_special_tokens: is not false, the only value that is supported");
  EXPECT_THAT(ErrorOf({{"fast_tokenizer_files", {"tokenizer.4.0.0.json", "tokenizer.json"}}}),
              HasSubstr("fast_tokenizer_files"));
  EXPECT_EQ(ErrorOf({{"fast_tokenizer_files", {"tokenizer.json"}}, {"split_special_tokens", false}}), "");
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
