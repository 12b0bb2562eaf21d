// SPDX-License-Identifier: Apache-2.0

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

std::string JoinedBytes(const Tokenizer& tokenizer, const std::string& text) {
  const auto tokens = tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = false});
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  std::string bytes;
  for (const TokenId token : *tokens) bytes += tokenizer.TokenBytes(token);
  return bytes;
}

TEST(TokenBytesTest, BytesOfAllTokensAreTheText) {
  const std::string text = "The na\u00EFve  cat saw \u16A0 and \U0001F600,\nthen 12:45.";
  for (const char* name : {"llama3", "qwen2"}) EXPECT_EQ(JoinedBytes(*LoadGolden(name), text), text) << name;
  // SentencePiece puts a space before a text.
  for (const char* name : {"sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace"}) {
    EXPECT_EQ(JoinedBytes(*LoadGolden(name), text), " " + text) << name;
  }
}

TEST(TokenBytesTest, PartOfACharacterIsABareByte) {
  const auto tokenizer = LoadGolden("sp_bpe_prepend");
  EXPECT_EQ(tokenizer->TokenBytes(*tokenizer->TokenToId("<0xE1>")), "\xE1");
  const auto sentencepiece = LoadGolden("sp_bpe");
  EXPECT_EQ(sentencepiece->TokenBytes(*sentencepiece->TokenToId("<0xE1>")), "\xE1");
}

TEST(TokenBytesTest, SpecialTokenIsItsNameAndAnUnknownIdNothing) {
  for (const char* name : {"llama3", "qwen2", "sp_bpe", "sp_bpe_prepend", "sp_unigram"}) {
    const auto tokenizer = LoadGolden(name);
    const std::optional<TokenId> eos = tokenizer->eos_id();
    if (eos.has_value()) {
      EXPECT_EQ(tokenizer->TokenBytes(*eos), *tokenizer->TokenPiece(*eos)) << name;
    }
    EXPECT_EQ(tokenizer->TokenBytes(static_cast<TokenId>(tokenizer->vocab_size())), "") << name;
    EXPECT_EQ(tokenizer->TokenBytes(-1), "") << name;
  }
}

}  // namespace
}  // namespace quire
