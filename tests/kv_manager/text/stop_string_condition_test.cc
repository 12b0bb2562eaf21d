// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/text/stop_string_condition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/text/output_text.h"
#include "tests/kv_manager/requests/toy_tokenizer.h"
#include "tests/kv_manager/tokenizer/golden_files.h"

namespace quire {
namespace {

std::vector<TokenId> Bytes(const std::string& text) {
  std::vector<TokenId> tokens;
  for (char c : text) tokens.push_back(ToyTokenizer::Byte(c));
  return tokens;
}

OutputOptions Stops(std::vector<std::string> stops, int min_tokens = 0) {
  return {.stop = std::move(stops), .min_tokens = min_tokens};
}

// Asks in the same way as the search: with the last tokens that the condition needs.
bool IsMet(const StopStringCondition& condition, absl::Span<const TokenId> tokens) {
  const size_t num_needed = condition.num_tokens_needed();
  return condition.IsMet(tokens.size() > num_needed ? tokens.last(num_needed) : tokens,
                         static_cast<int>(tokens.size()));
}

// Returns the number of tokens with which a hypothesis ends, or 0 if it does not end.
size_t EndOf(const StopStringCondition& condition, const std::vector<TokenId>& tokens) {
  for (size_t i = 1; i <= tokens.size(); ++i) {
    if (IsMet(condition, absl::MakeConstSpan(tokens).first(i))) return i;
  }
  return 0;
}

TEST(StopStringConditionTest, IsMetByTheTokenThatCompletesAStopString) {
  const auto tokenizer = std::make_shared<ToyTokenizer>(std::vector<std::string>{"XYZ"});
  const StopStringCondition condition(tokenizer, Bytes("p"), Stops({"YZ", "END"}));
  EXPECT_EQ(EndOf(condition, Bytes("abYaZENDx")), 8u);
  EXPECT_EQ(EndOf(condition, Bytes("abYaZENxD")), 0u);
  std::vector<TokenId> tokens = Bytes("a");
  tokens.push_back(258);
  EXPECT_EQ(EndOf(condition, tokens), 2u);
}

TEST(StopStringConditionTest, ThePromptIsNoPartOfAMatch) {
  const auto tokenizer = std::make_shared<ToyTokenizer>();
  const StopStringCondition condition(tokenizer, Bytes("EN"), Stops({"END"}));
  EXPECT_EQ(EndOf(condition, Bytes("D")), 0u);
}

TEST(StopStringConditionTest, MatchesBeforeMinTokensAreOrdinaryText) {
  const auto tokenizer = std::make_shared<ToyTokenizer>();
  for (int min_tokens : {0, 3, 4, 5, 100}) {
    SCOPED_TRACE(min_tokens);
    const StopStringCondition condition(tokenizer, Bytes("p"), Stops({"YY"}, min_tokens));
    const std::string text = "aYY" + std::string(min_tokens > 3 ? 40 : 0, 'b') + "YYY" + std::string(80, 'c') + "YY";
    const size_t expected = min_tokens <= 3 ? 3 : min_tokens == 100 ? 128 : 45;
    EXPECT_EQ(EndOf(condition, Bytes(text)), expected);
  }
}

TEST(StopStringConditionTest, WorkIsBoundedByTheLongestStopString) {
  const auto tokenizer = std::make_shared<ToyTokenizer>();
  const StopStringCondition condition(tokenizer, std::vector<TokenId>(1000, 5), Stops({"a", "bcde"}, 5000));
  EXPECT_LE(condition.num_tokens_needed(), 32);
}

TEST(StopStringConditionTest, IsMetByASpecialTokenThatIsNotShown) {
  const auto tokenizer = std::make_shared<ToyTokenizer>();
  for (const bool skips : {false, true}) {
    OutputOptions options = Stops({"b</s>", "END"});
    options.skip_special_tokens = skips;
    const StopStringCondition condition(tokenizer, Bytes("p"), options);
    std::vector<TokenId> tokens = Bytes(std::string(40, 'x') + "ab");
    tokens.push_back(ToyTokenizer::kEos);
    EXPECT_EQ(EndOf(condition, tokens), 43u) << skips;
    tokens = Bytes("EN");
    tokens.push_back(ToyTokenizer::kEos);
    tokens.push_back(ToyTokenizer::Byte('D'));
    EXPECT_EQ(EndOf(condition, tokens), skips ? 4u : 0u) << "the shown text matches too";
  }
}

std::vector<TokenId> RandomTokens(const Tokenizer& tokenizer, int max_tokens, std::mt19937* random) {
  const auto words =
      tokenizer.Encode("the na\u00EFve worker said: hello \U0001F600 world", {.add_special_tokens = false});
  EXPECT_TRUE(words.ok()) << words.status();
  std::vector<TokenId> tokens(1 + (*random)() % max_tokens);
  for (TokenId& token : tokens) {
    const bool is_word = (*random)() % 8 > 0;
    token =
        is_word ? (*words)[(*random)() % words->size()] : static_cast<TokenId>((*random)() % tokenizer.vocab_size());
  }
  return tokens;
}

// The condition decodes only the last few tokens, and OutputText decodes all of them.
TEST(StopStringConditionTest, AgreesWithTheTextOfAnyVocabulary) {
  std::mt19937 random(5);
  for (const char* name :
       {"llama3", "qwen2", "mixed", "sp_bpe", "sp_unigram", "sp_bpe_prepend", "sp_bpe_metaspace", "sp_unigram_json"}) {
    const std::shared_ptr<const Tokenizer> tokenizer = LoadGolden(name);
    int num_late = 0;
    for (int round = 0; round < 300; ++round) {
      SCOPED_TRACE(testing::Message() << name << " round " << round);
      const std::vector<TokenId> prompt = RandomTokens(*tokenizer, 20, &random);
      const std::vector<TokenId> output = RandomTokens(*tokenizer, 120, &random);
      std::string whole;  // Half of the stop strings are parts of the text with special tokens.
      OutputText unstopped(tokenizer.get(), prompt, {.skip_special_tokens = round % 2 == 0}, nullptr);
      for (TokenId token : output) unstopped.Append(token, &whole);
      if (whole.empty()) continue;
      const size_t begin = random() % whole.size();
      const OutputOptions options = Stops({whole.substr(begin, 4 + random() % 8)}, static_cast<int>(random() % 60));
      OutputText text(tokenizer.get(), prompt, options, nullptr);
      std::string shown;
      size_t expected = 0;
      for (size_t i = 0; i < output.size() && expected == 0; ++i) {
        if (text.Append(output[i], &shown).has_value()) expected = i + 1;
      }
      const StopStringCondition condition(tokenizer, prompt, options);
      ASSERT_EQ(EndOf(condition, output), expected) << options.stop[0];
      num_late += expected > static_cast<size_t>(condition.num_tokens_needed());
    }
    EXPECT_GT(num_late, 60) << name;
  }
}

}  // namespace
}  // namespace quire
