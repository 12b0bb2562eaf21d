// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/forced_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/openai/answer_parser.h"
#include "gateway/openai/field_reader.h"
#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

namespace quire {
namespace {

using testing::HasSubstr;

const std::vector<CallableTool> kCallable = {
    {.name = "get \"weather\" ::= \\",
     .parameters = R"({"type": "object", "description": "a ::= b", "properties": {"city": {"$ref": "#/$defs/c"}},
                       "required": ["city"], "$defs": {"c": {"enum": ["Rome", "Oslo"]}}})",
     .field = "tools[0]"},
    {.name = "stop",
     .parameters = R"({"type": "object", "properties": {}, "additionalProperties": false})",
     .field = "tools[1]"},
};

std::shared_ptr<const grammar::Automaton> Compiled(const std::string& text) {
  const auto automaton = grammar::Compile({.kind = grammar::Source::Kind::kEbnf, .text = text});
  EXPECT_TRUE(automaton.ok()) << automaton.status() << text;
  return automaton.ok() ? *automaton : nullptr;
}

// Draws answers of a grammar and checks that the parser finds nothing but calls in them, which have arguments that fit.
// Returns the largest number of calls.
size_t CheckAnswers(ToolCallFormat format, bool is_single) {
  static grammar::TokenMasks masks(grammar::TrialVocabulary(600, 3));
  const auto automaton = Compiled(ForcedCallGrammar(format, kCallable, is_single, Thoughts::kNone));
  if (automaton == nullptr) return 0;
  const AnswerSyntax syntax = {
      .tool_calls = {.format = format,
                     .tools = {kCallable[0].name, kCallable[1].name},
                     .is_single = is_single,
                     .begins_in_call = format == ToolCallFormat::kMistral},
  };
  Random random(5);
  size_t most_calls = 0;
  for (int i = 0; i < 20; ++i) {
    const auto text = grammar::RandomText(automaton, 200, &masks, &random);
    EXPECT_TRUE(text.has_value());
    if (!text.has_value()) return 0;
    SCOPED_TRACE(*text);
    AnswerParser parser(&syntax, [](size_t call) { return absl::StrCat("id", call); });
    AnswerText answer;
    for (size_t at = 0; at < text->size(); at += 5) {
      Append(parser.Add(absl::string_view(*text).substr(at, 5), at + 5 >= text->size()), &answer);
    }
    EXPECT_EQ(answer.content, "");
    EXPECT_FALSE(answer.calls.empty());
    size_t num_names = 0;  // All calls in the text. No argument contains this text.
    for (size_t at = text->find("\"name\": "); at != text->npos; at = text->find("\"name\": ", at + 1)) ++num_names;
    EXPECT_EQ(answer.calls.size(), num_names);
    for (const ToolCallDelta& call : answer.calls) {
      const Json arguments = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
      if (call.name == "stop") {
        EXPECT_EQ(arguments, Json::object());
      } else {
        EXPECT_EQ(call.name, kCallable[0].name);
        EXPECT_TRUE(arguments.is_object() && (arguments["city"] == "Rome" || arguments["city"] == "Oslo"));
      }
    }
    most_calls = std::max(most_calls, answer.calls.size());
  }
  return most_calls;
}

TEST(ForcedCallsTest, AnswersAreCallsThatTheParserReads) {
  for (const ToolCallFormat format : {ToolCallFormat::kHermes, ToolCallFormat::kLlama3, ToolCallFormat::kMistral}) {
    SCOPED_TRACE(absl::StrCat("format ", static_cast<int>(format)));
    EXPECT_EQ(CheckAnswers(format, /*is_single=*/true), 1u);
    EXPECT_GT(CheckAnswers(format, /*is_single=*/false), 1u);
  }
}

TEST(ForcedCallsTest, TheFormIsThatOfTheTemplates) {
  const auto accepts = [](ToolCallFormat format, const std::string& text) {
    return grammar::Matches(Compiled(ForcedCallGrammar(format, kCallable, /*is_single=*/false, Thoughts::kNone)), text);
  };
  EXPECT_TRUE(accepts(ToolCallFormat::kHermes,
                      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>\n"
                      "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_TRUE(
      accepts(ToolCallFormat::kLlama3, R"({"name": "stop", "parameters": {}}; {"name": "stop", "parameters": {}})"));
  EXPECT_TRUE(accepts(ToolCallFormat::kMistral, R"([{"name": "stop", "arguments": {}}])"));
  EXPECT_FALSE(accepts(ToolCallFormat::kMistral, "[]"));
  EXPECT_FALSE(accepts(ToolCallFormat::kLlama3, R"({"name": "go", "parameters": {}})"));
}

TEST(ForcedCallsTest, ThoughtsEndBeforeTheCalls) {
  const std::string call = R"({"name": "stop", "parameters": {}})";
  const auto accepts = [](Thoughts thoughts, const std::string& text) {
    return grammar::Matches(Compiled(ForcedCallGrammar(ToolCallFormat::kLlama3, kCallable, true, thoughts)), text);
  };
  EXPECT_TRUE(accepts(Thoughts::kBegun, "a < b, <x> << c\n</think>\n\n" + call));
  EXPECT_FALSE(accepts(Thoughts::kBegun, call));
  EXPECT_FALSE(accepts(Thoughts::kBegun, "a</x>b</think>" + call));
  EXPECT_TRUE(accepts(Thoughts::kOptional, "<think>a</think>" + call));
  EXPECT_TRUE(accepts(Thoughts::kOptional, call));
  EXPECT_FALSE(accepts(Thoughts::kNone, "<think>a</think>" + call));
}

TEST(ForcedCallsTest, AnErrorNamesTheToolAndTheKeyword) {
  const std::string text = ForcedCallGrammar(
      ToolCallFormat::kHermes,
      {kCallable[0], {.name = "f", .parameters = R"({"type": "object", "disallow": {}})", .field = "tools[1]"}}, true,
      Thoughts::kNone);
  const auto automaton = grammar::Compile({.kind = grammar::Source::Kind::kEbnf, .text = text});
  EXPECT_THAT(std::string(automaton.status().message()),
              HasSubstr("\"tools_1_function_parameters\", at #/disallow: the keyword \"disallow\" is not supported"));
}

}  // namespace
}  // namespace quire
