// SPDX-License-Identifier: Apache-2.0

// Compares with the results of the libraries `tokenizers` and `sentencepiece` for the strings in
// tests/golden/tokenizer, which tools/goldens/tokenizer_goldens.py wrote.

#include <functional>
#include <nlohmann/json.hpp>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/tokenizer/detokenizer.h"
#include "kv_manager/tokenizer/tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr EncodeOptions kAll{true, true};
constexpr EncodeOptions kNoneAdded{false, true};
constexpr EncodeOptions kPlain{false, false};

const std::vector<std::string>& Strings() {
  static const auto* strings = new std::vector<std::string>(
      json::parse(ReadRepositoryFile("tests/golden/tokenizer/strings.json")).get<std::vector<std::string>>());
  return *strings;
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  GoldenTest()
      : tokenizer_(LoadGolden(GetParam())),
        cases_(json::parse(ReadRepositoryFile(std::string("tests/golden/tokenizer/") + GetParam() + "/cases.json"))) {}

  std::vector<TokenId> Encode(const std::string& text, const EncodeOptions& options) {
    const auto tokens = tokenizer_->Encode(text, options);
    EXPECT_TRUE(tokens.ok()) << tokens.status();
    return tokens.ok() ? *tokens : std::vector<TokenId>{-1};
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  json cases_;
};

TEST_P(GoldenTest, EncodesLikeTheReference) {
  const json& encoded = cases_["encoded"];
  ASSERT_EQ(encoded.size(), Strings().size());
  for (size_t i = 0; i < encoded.size(); ++i) {
    const EncodeOptions options[] = {kAll, kNoneAdded, kPlain};
    // From the last to the first: 0 stands for the next one, null for what the reference does not do.
    json expected;
    for (size_t k = 3; k-- > 0;) {
      if (encoded[i][k] != 0) expected = encoded[i][k];
      if (expected.is_null()) continue;
      EXPECT_EQ(Encode(Strings()[i], options[k]), expected.get<std::vector<TokenId>>())
          << "string " << i << " " << json(Strings()[i]) << ", options " << k;
    }
  }
}

TEST_P(GoldenTest, EncodingEndsWhenNobodyWaits) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "aA1 ";
  const std::function<bool()> waits = [] { return false; }, has_left = [] { return true; };
  const auto tokens = tokenizer_->Encode(text, {.has_left = &waits});
  ASSERT_TRUE(tokens.ok()) << tokens.status();
  EXPECT_EQ(*tokens, *tokenizer_->Encode(text, {}));
  EXPECT_TRUE(absl::IsCancelled(tokenizer_->Encode(text, {.has_left = &has_left}).status()));
}

TEST_P(GoldenTest, DecodesLikeTheReference) {
  for (const json& decoded : cases_["decoded"]) {
    const auto tokens = decoded[0].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer_->Decode(tokens, /*skip_special_tokens=*/true), decoded[1].get<std::string>()) << decoded[0];
    if (decoded[2].is_null()) continue;
    EXPECT_EQ(tokenizer_->Decode(tokens, /*skip_special_tokens=*/false), decoded[2].get<std::string>()) << decoded[0];
  }
}

TEST_P(GoldenTest, AStreamThatStartsAnywhereContinuesTheText) {
  for (const json& decoded : cases_["decoded"]) {
    const auto tokens = decoded[0].get<std::vector<TokenId>>();
    const std::string whole = tokenizer_->Decode(tokens, true);
    for (size_t split = 0; split <= tokens.size(); ++split) {
      const absl::Span<const TokenId> all(tokens);
      const std::string context = tokenizer_->Decode(all.subspan(0, split), true);
      if (whole.compare(0, context.size(), context) != 0) continue;
      StreamingDetokenizer detokenizer(*tokenizer_, all.subspan(0, split), true);
      std::string text;
      for (const TokenId token : all.subspan(split)) text += detokenizer.Push(token);
      text += detokenizer.Finish();
      EXPECT_EQ(context + text, whole) << decoded[0] << " split at " << split;
    }
  }
}

TEST_P(GoldenTest, EveryTokenHasItsPiece) {
  int num_tokens = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_->vocab_size()); ++id) {
    const auto piece = tokenizer_->TokenPiece(id);
    if (!piece.ok()) continue;
    ++num_tokens;
    EXPECT_EQ(tokenizer_->TokenToId(*piece), id) << *piece;
  }
  EXPECT_GT(num_tokens, 300);
  EXPECT_FALSE(tokenizer_->TokenPiece(-1).ok());
  EXPECT_FALSE(tokenizer_->TokenPiece(static_cast<TokenId>(tokenizer_->vocab_size())).ok());
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenTest,
                         testing::Values("llama3", "qwen2", "mixed", "sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace",
                                         "sp_symbols", "sp_unigram", "sp_unigram_json"),
                         [](const auto& info) { return std::string(info.param); });

// Compares both files of one model on every golden string.
void ExpectSameTokens(const Tokenizer& from_json, const Tokenizer& from_model) {
  int num_equal = 0;
  for (const std::string& text : Strings()) {
    for (const EncodeOptions& options : {kAll, kNoneAdded, kPlain}) {
      const auto expected = from_model.Encode(text, options);
      const auto found = from_json.Encode(text, options);
      ASSERT_TRUE(expected.ok()) << expected.status();
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(*found, *expected) << json(text);
      num_equal += *found == *expected ? 1 : 0;
    }
    const auto tokens = from_model.Encode(text, kAll);
    // The one difference: SentencePiece writes a mark for the unknown token, the other file counts it as special.
    if (testing::Value(*tokens, testing::Contains(0))) continue;
    EXPECT_EQ(from_json.Decode(*tokens, true), from_model.Decode(*tokens, true)) << json(text);
  }
  EXPECT_GT(num_equal, 900);
}

TEST(SentencePieceConversionTest, TokenizerJsonAndTokenizerModelAgree) {
  ExpectSameTokens(*LoadGolden("sp_bpe_prepend"), *LoadGolden("sp_bpe"));
}

TEST(SentencePieceConversionTest, BothFilesOfARealModelAgree) {
  const std::string folder = "../shared/models/stories260k/";
  TokenizerFiles files;
  files.tokenizer_json = ReadRepositoryFile(folder + "tokenizer.json");
  files.tokenizer_model = ReadRepositoryFile(folder + "tokenizer.model");
  files.tokenizer_config_json = ReadRepositoryFile(folder + "tokenizer_config.json");
  if (files.tokenizer_json.empty()) GTEST_SKIP() << folder << " is not here";
  files.architecture = "LlamaForCausalLM";
  const auto from_json = Tokenizer::Load(files);
  ASSERT_TRUE(from_json.ok()) << from_json.status();
  files.tokenizer_json.clear();
  const auto from_model = Tokenizer::Load(files);
  ASSERT_TRUE(from_model.ok()) << from_model.status();
  EXPECT_EQ((*from_json)->bos_id(), 1);
  EXPECT_EQ((*from_model)->bos_id(), 1);
  EXPECT_EQ((*from_json)->eos_id(), 2);
  EXPECT_EQ((*from_model)->eos_id(), 2);
  ExpectSameTokens(**from_json, **from_model);
}

}  // namespace
}  // namespace quire
