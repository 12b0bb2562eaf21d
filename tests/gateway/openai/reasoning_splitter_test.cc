// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/reasoning_splitter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

std::string SplitInPieces(const std::string& text, bool begins_in_reasoning, size_t piece_bytes) {
  ReasoningSplitter splitter(begins_in_reasoning);
  AnswerText all;
  for (size_t i = 0; i < text.size(); i += piece_bytes) {
    splitter.Add(absl::string_view(text).substr(i, piece_bytes), i + piece_bytes >= text.size(), &all);
  }
  return absl::StrCat(all.reasoning, "|", all.content);
}

// "reasoning|content", which must not depend on how the text is divided into pieces.
std::string Split(const std::string& text, bool begins_in_reasoning = false) {
  const std::string whole = SplitInPieces(text, begins_in_reasoning, text.size());
  for (const size_t piece_bytes : {1, 2, 3, 7}) {
    EXPECT_EQ(SplitInPieces(text, begins_in_reasoning, piece_bytes), whole) << piece_bytes;
  }
  return whole;
}

TEST(ReasoningSplitterTest, ThoughtsAreBetweenTags) {
  EXPECT_EQ(Split("<think>a < b</think>c"), "a < b|c");
  EXPECT_EQ(Split("\n<think>\na\n\nb\n</think>\n\nc\n<think>"), "a\n\nb|c\n<think>");
  EXPECT_EQ(Split("<think>\n\n</think>\n\nc"), "|c");
}

TEST(ReasoningSplitterTest, WithoutATagAtTheBeginningAllIsContent) {
  EXPECT_EQ(Split(" a <think>b</think>"), "| a <think>b</think>");
  EXPECT_EQ(Split("<thin"), "|<thin");
}

TEST(ReasoningSplitterTest, AfterAPromptThatEndsWithTheTagTheTextBeginsWithThoughts) {
  EXPECT_EQ(Split("a\n</think>\n\nc", true), "a|c");
  EXPECT_EQ(Split("<think>\na</think>c", true), "a|c");
}

TEST(ReasoningSplitterTest, TheEndOfAPromptTellsWhetherThoughtsCome) {
  EXPECT_EQ(ThoughtsAfter("x<think>\n", std::nullopt), Thoughts::kBegun);
  EXPECT_EQ(ThoughtsAfter("x<think>\n\n</think>\n\n", std::nullopt), Thoughts::kNone);
  EXPECT_EQ(ThoughtsAfter("assistant</think>", std::nullopt), Thoughts::kNone) << "as DeepSeek V3.1 writes it";
  EXPECT_EQ(ThoughtsAfter("<think></think>x", std::nullopt), Thoughts::kOptional) << "an earlier answer";
  EXPECT_EQ(ThoughtsAfter("", std::nullopt), Thoughts::kOptional);
}

TEST(ReasoningSplitterTest, NoThoughtsBeginWithinAMessageThatIsContinued) {
  EXPECT_EQ(ThoughtsAfter("user: a, assistant: b", "b"), Thoughts::kNone);
  EXPECT_EQ(ThoughtsAfter("user: a, assistant: <think>b", "<think>b"), Thoughts::kBegun);
  EXPECT_EQ(ThoughtsAfter("<think>a</think>b", "<think>a</think>b"), Thoughts::kNone);
  EXPECT_EQ(ThoughtsAfter("assistant: <think>\n", "<think>"), Thoughts::kBegun);
}

TEST(ReasoningSplitterTest, ThoughtsThatAreCutStayThoughts) {
  EXPECT_EQ(Split("<think>a</thi"), "a</thi|");
  EXPECT_EQ(Split("<think>a\n"), "a\n|");
}

}  // namespace
}  // namespace quire
