// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/tokenizer/detokenizer.h"

#include <random>
#include <thread>

#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

constexpr const char* kVocabularies[] = {"llama3",         "qwen2",      "mixed",          "sp_bpe",
                                         "sp_unigram",     "sp_symbols", "sp_bpe_prepend", "sp_bpe_metaspace",
                                         "sp_unigram_json"};

std::vector<TokenId> Encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto tokens = tokenizer.Encode(text, {.add_special_tokens = false});
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *tokens;
}

TEST(StreamingDetokenizerTest, DeltasAreWholeCharactersAndAddUpToDecode) {
  std::mt19937 random(5);
  for (const char* name : kVocabularies) {
    const auto tokenizer = LoadGolden(name);
    for (int round = 0; round < 300; ++round) {
      std::vector<TokenId> tokens(random() % 20);
      // One more than the vocabulary: an id without a piece adds nothing.
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % (tokenizer->vocab_size() + 1));
      for (const bool skip_special_tokens : {true, false}) {
        StreamingDetokenizer detokenizer(*tokenizer, {}, skip_special_tokens);
        std::string text;
        for (const TokenId token : tokens) {
          const std::string delta = detokenizer.Push(token);
          EXPECT_TRUE(IsValidUtf8(delta)) << name << " round " << round;
          text += delta;
        }
        text += detokenizer.Finish();
        EXPECT_EQ(text, tokenizer->Decode(tokens, skip_special_tokens)) << name << " round " << round;
      }
    }
  }
}

TEST(StreamingDetokenizerTest, AContinuationKeepsItsSpace) {
  for (const char* name : {"sp_bpe", "sp_bpe_prepend", "sp_bpe_metaspace", "sp_unigram", "sp_unigram_json"}) {
    const auto tokenizer = LoadGolden(name);
    const std::vector<TokenId> prompt = Encode(*tokenizer, "The");
    const std::vector<TokenId> next = Encode(*tokenizer, "worker");
    const auto text_behind = [&](absl::Span<const TokenId> context) {
      StreamingDetokenizer detokenizer(*tokenizer, context, true);
      std::string text;
      for (const TokenId token : next) text += detokenizer.Push(token);
      return text + detokenizer.Finish();
    };
    EXPECT_EQ(text_behind(prompt), " worker") << name;
    EXPECT_EQ(text_behind({}), "worker") << name;
    const TokenId bos[] = {1};
    EXPECT_EQ(text_behind(bos), "worker") << name << ": a hidden token is no text";
  }
}

TEST(StreamingDetokenizerTest, TheContextsOwnTextIsNotRepeated) {
  const auto tokenizer = LoadGolden("sp_bpe_prepend");
  // A rare character becomes byte tokens. This decoder converts them only at the end of their run.
  const std::vector<TokenId> prompt = Encode(*tokenizer, "a\u16A0");
  const std::vector<TokenId> next = {*tokenizer->TokenToId("<0xE1>"), *tokenizer->TokenToId("<0x9A>"),
                                     *tokenizer->TokenToId("<0xA1>"), *tokenizer->TokenToId("b")};
  StreamingDetokenizer detokenizer(*tokenizer, prompt, true);
  std::string text;
  for (const TokenId token : next) text += detokenizer.Push(token);
  EXPECT_EQ(text + detokenizer.Finish(), "\u16A1b");
}

TEST(StreamingDetokenizerTest, ACharacterThatTheContextBeganIsFinished) {
  const auto tokenizer = LoadGolden("llama3");
  const std::vector<TokenId> tokens = Encode(*tokenizer, "\u16A0");
  ASSERT_EQ(tokens.size(), 3u);
  StreamingDetokenizer detokenizer(*tokenizer, absl::MakeConstSpan(tokens).subspan(0, 2), true);
  EXPECT_EQ(detokenizer.Push(tokens[2]), "\u16A0");
}

TEST(StreamingDetokenizerTest, ACopyForksTheSequence) {
  const auto tokenizer = LoadGolden("llama3");
  const std::vector<TokenId> tokens = Encode(*tokenizer, "\u16A0");
  StreamingDetokenizer first(*tokenizer, {}, true);
  EXPECT_EQ(first.Push(tokens[0]), "");
  StreamingDetokenizer second = first;
  EXPECT_EQ(first.Push(tokens[1]), "");
  EXPECT_EQ(first.Push(tokens[2]), "\u16A0");
  EXPECT_EQ(second.Finish(), "\uFFFD");
}

TEST(TokenizerTest, OneTokenizerServesManyThreads) {
  for (const char* name : kVocabularies) {
    const auto tokenizer = LoadGolden(name);
    const std::string text = "It's 12:45, they're na\u00EFve \u4E2D\u56FD \U0001F600 <s>";
    const std::vector<TokenId> expected = Encode(*tokenizer, text);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 50; ++round) EXPECT_EQ(Encode(*tokenizer, text), expected);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(TokenizerTest, TextThatIsNotUtf8IsRefused) {
  for (const char* name : kVocabularies) {
    const auto tokens = LoadGolden(name)->Encode("ab\xED\xA0\x80", {});
    EXPECT_EQ(tokens.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(tokens.status().message(), testing::HasSubstr("text is not valid UTF-8: byte 2 of 5"));
  }
}

TEST(TokenizerTest, TheConfigNamesTheSpecialTokens) {
  TokenizerFiles files = GoldenFiles("sp_bpe");
  files.tokenizer_config_json = R"({"add_bos_token":false,"add_eos_token":true,"eos_token":{"content":"</s>"}})";
  const auto tokenizer = Tokenizer::Load(files);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  EXPECT_TRUE((*tokenizer)->IsSpecial(1));
  EXPECT_FALSE((*tokenizer)->IsSpecial(300));
  const auto tokens = (*tokenizer)->Encode("a", {});
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->back(), 2);
  EXPECT_NE(tokens->front(), 1);

  files = GoldenFiles("llama3");
  files.tokenizer_config_json = R"({"bos_token":"<|begin_of_text|>","eos_token":"<|eot_id|>"})";
  const auto llama3 = Tokenizer::Load(files);
  ASSERT_TRUE(llama3.ok()) << llama3.status();
  EXPECT_EQ((*llama3)->bos_id(), (*llama3)->TokenToId("<|begin_of_text|>"));
  EXPECT_EQ((*llama3)->eos_id(), (*llama3)->TokenToId("<|eot_id|>"));
  EXPECT_EQ(LoadGolden("llama3")->bos_id(), (*llama3)->bos_id()) << "also without a config";
}

}  // namespace
}  // namespace quire
