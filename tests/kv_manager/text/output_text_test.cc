// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/output_text.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

constexpr const char* kVocabularies[] = {
    "llama3", "qwen2", "mixed", "sp_bpe", "sp_unigram", "sp_bpe_prepend", "sp_bpe_metaspace", "sp_unigram_json"};

// Three of four tokens come from a text. Most tokens of the vocabulary are special, rare or single bytes.
std::vector<TokenId> RandomTokens(const Tokenizer& tokenizer, std::mt19937* random) {
  const auto words =
      tokenizer.Encode("the na\u00EFve worker said: hello \U0001F600 world", {.add_special_tokens = false});
  EXPECT_TRUE(words.ok()) << words.status();
  std::vector<TokenId> tokens(1 + (*random)() % 20);
  for (TokenId& token : tokens) {
    const bool is_word = (*random)() % 4 > 0;
    token =
        is_word ? (*words)[(*random)() % words->size()] : static_cast<TokenId>((*random)() % tokenizer.vocab_size());
  }
  return tokens;
}

TEST(OutputTextTest, PromptAndOutputReadAsIfDecodedTogether) {
  std::mt19937 random(3);
  for (const char* name : kVocabularies) {
    const auto tokenizer = LoadGolden(name);
    for (int round = 0; round < 300; ++round) {
      SCOPED_TRACE(testing::Message() << name << " round " << round);
      const std::vector<TokenId> prompt = RandomTokens(*tokenizer, &random);
      const std::vector<TokenId> output = RandomTokens(*tokenizer, &random);
      std::string text;
      OutputText echoing(tokenizer.get(), prompt, {}, &text);
      for (TokenId token : output) EXPECT_EQ(echoing.Append(token, &text), std::nullopt);
      EXPECT_EQ(echoing.Finish(&text), std::nullopt);
      std::vector<TokenId> all = prompt;
      all.insert(all.end(), output.begin(), output.end());
      ASSERT_EQ(text, tokenizer->Decode(all, /*skip_special_tokens=*/true));
    }
  }
}

TEST(OutputTextTest, TheTextOfAPromptIsCutAtTheOffsetsOfItsTokens) {
  const std::string text = "the hello world, a worker said: hello";
  for (const char* name : kVocabularies) {
    if (name == std::string("mixed")) continue;  // Its decoder keeps the text of a token back until the next one.
    const auto tokenizer = LoadGolden(name);
    const std::vector<TokenId> prompt = tokenizer->Encode(text, {.add_special_tokens = true}).value();
    std::vector<size_t> offsets = PromptTextOffsets(*tokenizer, prompt, text);
    ASSERT_EQ(offsets.size(), prompt.size());
    offsets.push_back(text.size());
    for (size_t i = 0; i < prompt.size(); ++i) {
      SCOPED_TRACE(testing::Message() << name << " token " << i << ", offsets " << testing::PrintToString(offsets));
      ASSERT_LE(offsets[i], offsets[i + 1]);
      std::string token = tokenizer->IsSpecial(prompt[i]) ? "" : tokenizer->TokenBytes(prompt[i]);
      if (token == "\u2581" || (offsets[i] == 0 && token[0] == ' ')) token.erase(0, 1);
      EXPECT_EQ(text.substr(offsets[i], offsets[i + 1] - offsets[i]), token);
    }
  }
}

TEST(OutputTextTest, OffsetsGoOnWhereTheTokenizerHasChangedTheText) {
  const auto tokenizer = LoadGolden("sp_unigram");  // It has no capital letters.
  const std::string text = "the HELLO hello world";
  const std::vector<TokenId> prompt = tokenizer->Encode(text, {.add_special_tokens = false}).value();
  const std::vector<size_t> offsets = PromptTextOffsets(*tokenizer, prompt, text);
  const size_t last = prompt.size() - 1;
  EXPECT_EQ(text.substr(offsets[last]), tokenizer->TokenBytes(prompt[last]));
}

TEST(OutputTextTest, OffsetsCountCodePointsAndSpecialTokensThatTheTextShows) {
  const auto tokenizer = LoadGolden("llama3");
  std::vector<TokenId> prompt = tokenizer->Encode("\u00F6", {.add_special_tokens = false}).value();
  const size_t num_parts = prompt.size();
  prompt.push_back(tokenizer->TokenToId("<|eot_id|>").value());
  prompt.push_back(prompt[0]);
  std::vector<size_t> offsets(num_parts, 0);
  offsets.insert(offsets.end(), {1, 11});
  EXPECT_EQ(PromptTextOffsets(*tokenizer, prompt, "\u00F6<|eot_id|>\u00F6"), offsets);
  offsets.back() = 1;
  EXPECT_EQ(PromptTextOffsets(*tokenizer, prompt, "\u00F6\u00F6"), offsets) << "the text does not show it";
}

TEST(OutputTextTest, StopStringCutsTheDecodedTextOfAnyVocabulary) {
  std::mt19937 random(4);
  for (const char* name : kVocabularies) {
    const auto tokenizer = LoadGolden(name);
    int num_stopped = 0;
    for (int round = 0; round < 300; ++round) {
      SCOPED_TRACE(testing::Message() << name << " round " << round);
      const std::vector<TokenId> prompt = RandomTokens(*tokenizer, &random);
      const std::vector<TokenId> output = RandomTokens(*tokenizer, &random);
      std::string whole;
      OutputText unstopped(tokenizer.get(), prompt, {}, nullptr);
      for (TokenId token : output) unstopped.Append(token, &whole);
      unstopped.Finish(&whole);
      if (whole.empty()) continue;

      // A part of the text. The matcher treats a stop string as bytes.
      const size_t begin = random() % whole.size();
      const std::string stop = whole.substr(begin, 1 + random() % 8);
      OutputText stopped(tokenizer.get(), prompt, {.stop = {stop}}, nullptr);
      std::string text;
      std::optional<std::string> match;
      for (TokenId token : output) {
        if (match = stopped.Append(token, &text); match.has_value()) break;
      }
      if (!match.has_value()) match = stopped.Finish(&text);
      ASSERT_EQ(match, stop);
      ASSERT_EQ(text, whole.substr(0, whole.find(stop)));
      ++num_stopped;
    }
    EXPECT_GT(num_stopped, 200) << name;
  }
}

// Appends tokens until one completes a stop string.
std::optional<std::string> Stopped(OutputText* output, const std::vector<TokenId>& tokens, std::string* text) {
  for (const TokenId token : tokens) {
    if (std::optional<std::string> stop = output->Append(token, text); stop.has_value()) return stop;
  }
  return output->Finish(text);
}

TEST(OutputTextTest, StopStringMatchesASpecialTokenOfAnyVocabularyThatIsNotShown) {
  for (const auto& [name, special] :
       {std::pair("llama3", "<|eot_id|>"), {"qwen2", "<|im_end|>"}, {"sp_bpe", "</s>"}, {"sp_unigram", "</s>"}}) {
    const auto tokenizer = LoadGolden(name);
    std::vector<TokenId> tokens = tokenizer->Encode("the hello", {.add_special_tokens = false}).value();
    tokens.push_back(tokenizer->TokenToId(special).value());
    const std::vector<TokenId> more = tokenizer->Encode(" world", {.add_special_tokens = false}).value();
    tokens.insert(tokens.end(), more.begin(), more.end());
    for (const bool skips : {false, true}) {
      for (const std::string before : {"", "lo"}) {
        for (const bool includes : {false, true}) {
          SCOPED_TRACE(testing::Message() << name << " skips " << skips << " includes " << includes << before);
          const std::string stop = before + special;
          OutputText output(tokenizer.get(), {},
                            {.stop = {stop}, .include_stop = includes, .skip_special_tokens = skips}, nullptr);
          std::string text;
          EXPECT_EQ(Stopped(&output, tokens, &text), stop);
          EXPECT_EQ(text, (before.empty() ? "the hello" : "the hel") + (includes ? stop : ""));
        }
      }
    }
  }
}

TEST(OutputTextTest, EndTokenIsNoStopStringUnlessItBelongsToTheText) {
  const auto tokenizer = LoadGolden("llama3");
  const TokenId end = tokenizer->TokenToId("<|eot_id|>").value();
  for (const bool includes : {false, true}) {
    OutputText output(tokenizer.get(), {}, {.stop = {"<|eot_id|>"}, .end_tokens = {end}, .include_stop = includes},
                      nullptr);
    std::string text;
    EXPECT_EQ(Stopped(&output, {end}, &text).has_value(), includes);
    EXPECT_EQ(text, includes ? "<|eot_id|>" : "");
  }
}

}  // namespace
}  // namespace quire
