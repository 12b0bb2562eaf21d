// SPDX-License-Identifier: Apache-2.0

// Every format of calls and thoughts, under every division of texts.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gateway/openai/answer_parser.h"
#include "gateway/openai/field_reader.h"
#include "gtest/gtest.h"
#include "tests/flag_reference.h"
#include "tests/gateway/openai/format_samples.h"

namespace quire {
namespace {

std::string Described(const AnswerText& text) {
  std::string result = absl::StrCat(text.reasoning, "|", text.content);
  for (const ToolCallDelta& call : text.calls) absl::StrAppend(&result, " | ", call.name, " ", call.arguments);
  return result;
}

// Parses a text that comes in pieces, which end at these places and at the end of the text.
AnswerText ParseInPieces(const AnswerSyntax& syntax, absl::string_view text, const std::vector<size_t>& ends,
                         bool* has_whole_calls = nullptr) {
  AnswerParser parser(&syntax, [](size_t index) { return absl::StrCat("id", index); });
  AnswerText all;
  size_t begin = 0;
  for (const size_t end : ends) {
    Append(parser.Add(text.substr(begin, end - begin), /*is_last=*/false), &all);
    begin = end;
  }
  Append(parser.Add(text.substr(begin), /*is_last=*/true), &all);
  if (has_whole_calls != nullptr) *has_whole_calls = parser.has_whole_calls();
  return all;
}

std::string Parse(const AnswerSyntax& syntax, absl::string_view text, const std::vector<size_t>& ends = {}) {
  return Described(ParseInPieces(syntax, text, ends));
}

std::vector<size_t> EveryByte(absl::string_view text) {
  std::vector<size_t> ends;
  for (size_t i = 1; i < text.size(); ++i) ends.push_back(i);
  return ends;
}

// What a text means, which must not depend on how it is divided into pieces.
std::string ParseEveryWay(const AnswerSyntax& syntax, absl::string_view text) {
  const std::string whole = Parse(syntax, text);
  EXPECT_EQ(Parse(syntax, text, EveryByte(text)), whole) << text;
  for (size_t first = 1; first < text.size(); ++first) {
    const std::string in_two = Parse(syntax, text, {first});
    EXPECT_EQ(in_two, whole) << text << "\ndivided at " << first;
    if (in_two != whole) break;
  }
  return whole;
}

AnswerSyntax SyntaxOfSample(const FormatSample& sample) {
  return SyntaxOfSample(sample.format, sample.reasoning_format, sample.text);
}

AnswerSyntax Syntax(ToolCallFormat format) {
  return SyntaxOfSample(format, "", "");
}

TEST(CallFormatsTest, EveryFormatHasASample) {
  std::set<ToolCallFormat> sampled;
  for (const FormatSample& sample : FormatSamples()) sampled.insert(sample.format);
  for (const CallSyntax& syntax : CallSyntaxes()) {
    EXPECT_TRUE(sampled.contains(syntax.format)) << syntax.name;
    EXPECT_EQ(&SyntaxOf(syntax.format), &syntax);
    EXPECT_EQ(ToolCallFormatOf(syntax.name), syntax.format);
  }
  EXPECT_EQ(ToolCallFormatOf("qwen3_coder"), ToolCallFormat::kQwen3Xml);
  EXPECT_EQ(ToolCallFormatOf(""), ToolCallFormat::kNone);
  EXPECT_EQ(ReasoningSyntaxOf("none"), nullptr);
}

// A text as code in a table.
std::string Code(absl::string_view text) {
  const char* const mark = absl::StrContains(text, "`") ? "``" : "`";
  return absl::StrCat(mark, absl::StrReplaceAll(text, {{"|", "\\|"}}), mark);
}

TEST(CallFormatsTest, TheDocumentsHaveTheTables) {
  std::string calls = "| `--tool-call-format` | models | format |\n|---|---|---|\n";
  for (const CallSyntax& syntax : CallSyntaxes()) {
    absl::StrAppend(&calls, "| ", Code(syntax.name), " | ", syntax.models, " | ", Code(syntax.example), " |\n");
  }
  EXPECT_EQ(MadeSection("docs/openai.md", "formats of calls", calls), calls);
  std::string thoughts = "| `--reasoning-format` | format |\n|---|---|\n";
  for (const ReasoningSyntax& syntax : ReasoningSyntaxes()) {
    const std::string format = syntax.is_channel() ? "<|channel|>analysis<|message|>...<|end|>"
                                                   : absl::StrCat(syntax.begin, "...", syntax.end);
    absl::StrAppend(&thoughts, "| ", Code(syntax.name), " | ", Code(format), " |\n");
  }
  EXPECT_EQ(MadeSection("docs/openai.md", "formats of thoughts", thoughts), thoughts);
}

TEST(CallFormatsTest, SamplesMeanTheSameUnderEveryDivisionIntoThree) {
  for (const FormatSample& sample : FormatSamples()) {
    SCOPED_TRACE(SyntaxOf(sample.format).name);
    const AnswerSyntax syntax = SyntaxOfSample(sample);
    const absl::string_view text = sample.text;
    EXPECT_EQ(ParseEveryWay(syntax, text), sample.meaning);
    bool is_same = true;
    for (size_t first = 1; first < text.size() && is_same; ++first) {
      for (size_t second = first + 1; second < text.size() && is_same; ++second) {
        const std::string found = Parse(syntax, text, {first, second});
        is_same = found == sample.meaning;
        EXPECT_TRUE(is_same) << found << "\ndivided at " << first << " and " << second;
      }
    }
    bool has_whole_calls = false;
    ParseInPieces(syntax, text, {}, &has_whole_calls);
    EXPECT_EQ(has_whole_calls, absl::StrContains(sample.meaning, " | "));
  }
}

// z, q and 7 are never in tags and names.
size_t NumMarks(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c == 'z' || c == 'q' || c == '7'; }));
}

TEST(CallFormatsTest, TextsThatAreCutLoseNothing) {
  for (const FormatSample& sample : FormatSamples()) {
    SCOPED_TRACE(SyntaxOf(sample.format).name);
    const AnswerSyntax syntax = SyntaxOfSample(sample);
    for (size_t size = 0; size < absl::string_view(sample.text).size(); ++size) {
      const absl::string_view text = absl::string_view(sample.text).substr(0, size);
      const std::string whole = Parse(syntax, text);
      EXPECT_EQ(NumMarks(whole), NumMarks(text)) << text << "\n" << whole;
      EXPECT_EQ(Parse(syntax, text, EveryByte(text)), whole) << text;
    }
  }
}

TEST(CallFormatsTest, BrokenTextsLoseNothing) {
  for (const FormatSample& sample : FormatSamples()) {
    SCOPED_TRACE(SyntaxOf(sample.format).name);
    const AnswerSyntax syntax = SyntaxOfSample(sample);
    for (size_t at = 0; at < absl::string_view(sample.text).size(); ++at) {
      for (const size_t num_bytes : {1, 4, 11}) {
        std::string text(sample.text);
        text.erase(at, num_bytes);
        const std::string whole = Parse(syntax, text);
        // An object may have members that no call has, which are left out.
        if (!absl::StrContains(sample.text, "\"name\"")) {
          EXPECT_EQ(NumMarks(whole), NumMarks(text)) << text << "\n" << whole;
        }
        EXPECT_EQ(Parse(syntax, text, EveryByte(text)), whole) << text;
      }
    }
  }
}

TEST(CallFormatsTest, ACallOfNoToolStaysText) {
  for (const FormatSample& sample : FormatSamples()) {
    if (!absl::StrContains(sample.meaning, " | ")) continue;
    SCOPED_TRACE(SyntaxOf(sample.format).name);
    AnswerSyntax syntax = SyntaxOfSample(sample);
    syntax.tool_calls.tools = {"other"};
    const std::string whole = ParseEveryWay(syntax, sample.text);
    EXPECT_FALSE(absl::StrContains(whole, " | ")) << whole;
    EXPECT_EQ(NumMarks(whole), NumMarks(sample.text)) << whole;
  }
}

TEST(CallFormatsTest, WithoutParallelCallsOnlyTheFirstOneCounts) {
  for (const FormatSample& sample : FormatSamples()) {
    if (!absl::StrContains(sample.meaning, " | g ")) continue;
    SCOPED_TRACE(SyntaxOf(sample.format).name);
    AnswerSyntax syntax = SyntaxOfSample(sample);
    syntax.tool_calls.is_single = true;
    const std::string meaning = sample.meaning;
    EXPECT_EQ(ParseEveryWay(syntax, sample.text), meaning.substr(0, meaning.find(" | g ")));
  }
}

TEST(CallFormatsTest, AStringComesAsItsTextComes) {
  const AnswerSyntax syntax = Syntax(ToolCallFormat::kQwen3Xml);
  AnswerParser parser(&syntax, [](size_t) { return "id"; });
  const AnswerText first = parser.Add("<tool_call>\n<function=f>\n<parameter=s>\none\ntw", /*is_last=*/false);
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "f");
  EXPECT_EQ(first.calls[0].arguments, R"({"s": "one\ntw)");
  EXPECT_EQ(Described(parser.Add("o\n</para", /*is_last=*/false)), "| |  o");
}

TEST(CallFormatsTest, TheSchemaTellsTheTypesOfValues) {
  const auto value = [](const char* name, const std::string& text) {
    const std::string call = absl::StrCat("<tool_call>\n<function=f>\n<parameter=", name, ">\n", text,
                                          "\n</parameter>\n</function>\n</tool_call>");
    std::string result = ParseEveryWay(Syntax(ToolCallFormat::kQwen3Xml), call);
    const std::string begin = absl::StrCat("| | f {\"", name, "\": ");
    EXPECT_TRUE(absl::StartsWith(result, begin)) << result;
    return result.substr(begin.size(), result.size() - begin.size() - 1);
  };
  EXPECT_EQ(value("s", "12"), R"("12")");
  EXPECT_EQ(value("s", "\n\ttwo \"lines\" \\\n"), R"("\n\ttwo \"lines\" \\\n")");
  EXPECT_EQ(value("a", "12345678901234567890123"), "12345678901234567890123") << "digits are kept";
  EXPECT_EQ(value("a", "twelve"), R"("twelve")") << "a program must check it";
  EXPECT_EQ(value("b", "False"), "false");
  EXPECT_EQ(value("u", "1e3"), "1e3");
  EXPECT_EQ(value("u", "true"), R"("true")");
  EXPECT_EQ(value("l", "['it\\'s', (1, 2)]"), R"(["it's",[1,2]])");
  EXPECT_EQ(value("o", R"({"k": {"deep": [{}]}})"), R"({"k": {"deep": [{}]}})");
  EXPECT_EQ(value("unknown", "null"), "null");
  EXPECT_EQ(value("unknown", "\"quoted\""), R"("\"quoted\"")");
  EXPECT_EQ(value("unknown", "é"), "\"é\"");
}

// A schema that refers to itself twice, and long enumerations.
TEST(CallFormatsTest, WhatIsReadOfSchemasIsBoundedForTheWholeRequest) {
  Json schema = Json::parse(R"({"$defs": {"twice": {"anyOf": [{"$ref": "#/$defs/twice"}, {"$ref": "#/$defs/twice"}]},
                                          "names": {"enum": []}}, "properties": {}})");
  for (int i = 0; i < 100'000; ++i) schema["$defs"]["names"]["enum"].emplace_back("x");
  for (int i = 0; i < 100; ++i) {
    schema["properties"][absl::StrCat("shared", i)]["$ref"] = "#/$defs/names";
    schema["properties"][absl::StrCat("twice", i)]["$ref"] = "#/$defs/twice";
    if (i < 10) schema["properties"][absl::StrCat("names", i)] = schema["$defs"]["names"];
  }
  schema["properties"]["number"]["anyOf"] = Json::parse(R"([{"type": "number"}, {"enum": ["all", null]}])");
  SchemaTypes types;
  SchemaDocument document(schema);
  const ParameterTypes parameters = ParameterTypesOf(&document, &types);
  EXPECT_EQ(parameters.at("shared99"), kStringType) << "an enumeration is read once";
  EXPECT_EQ(parameters.at("names8"), kStringType);
  EXPECT_EQ(parameters.at("names9"), kAnyType);
  EXPECT_EQ(parameters.at("twice0"), kAnyType);
  EXPECT_EQ(parameters.at("number"), kNumberType | kStringType | kNullType) << "small schemas are always read";
}

TEST(CallFormatsTest, TagsThatAreMissingAreNoReasonToMissACall) {
  const AnswerSyntax qwen = Syntax(ToolCallFormat::kQwen3Xml);
  EXPECT_EQ(ParseEveryWay(qwen,
                          "<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=s>\nx\n</parameter>\n"
                          "</function>\n</tool_call>"),
            R"(| | f {"a": 1, "s": "x"})");
  EXPECT_EQ(ParseEveryWay(qwen, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>"),
            R"(| | f {"s": "x"})");
  EXPECT_EQ(ParseEveryWay(qwen, "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call> y"),
            R"(| y | f {"s": "x"})");
  EXPECT_EQ(ParseEveryWay(Syntax(ToolCallFormat::kKimiK2),
                          "x<|tool_call_begin|>f<|tool_call_argument_begin|><|tool_call_end|>"),
            "|x | f {}");
  EXPECT_EQ(ParseEveryWay(
                Syntax(ToolCallFormat::kDeepseekV3),
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json {}<｜tool▁call▁end｜>"),
            "| | f {}");
}

TEST(CallFormatsTest, ACallThatBreaksKeepsItsArgumentsAndTheRest) {
  bool has_whole_calls = true;
  const absl::string_view text = "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function oops";
  EXPECT_EQ(ParseEveryWay(Syntax(ToolCallFormat::kQwen3Xml), text), "| | f {\"a\": 1\n</parameter>\n</function oops");
  const absl::string_view other = "<tool_call>f\noops</tool_call>";
  EXPECT_EQ(ParseEveryWay(Syntax(ToolCallFormat::kGlm45), other), "|oops</tool_call> | f {}");
  ParseInPieces(Syntax(ToolCallFormat::kGlm45), other, {}, &has_whole_calls);
  EXPECT_FALSE(has_whole_calls);
}

TEST(CallFormatsTest, KimiNamesItsCalls) {
  const FormatSample* const kimi = std::find_if(std::begin(kFormatSamples), std::end(kFormatSamples),
                                                [](const auto& s) { return s.format == ToolCallFormat::kKimiK2; });
  const AnswerText text = ParseInPieces(SyntaxOfSample(*kimi), kimi->text, {});
  ASSERT_EQ(text.calls.size(), 2u);
  EXPECT_EQ(text.calls[1].id, "functions.g:1");
}

TEST(CallFormatsTest, HarmonyWithoutToolsHasThoughtsAndContent) {
  AnswerSyntax syntax = SyntaxOfSample(ToolCallFormat::kNone, "openai", "");
  EXPECT_TRUE(syntax.has_special_tags());
  EXPECT_EQ(ParseEveryWay(syntax,
                          "<|channel|>analysis<|message|>one<|end|><|start|>assistant<|channel|>analysis"
                          "<|message|>two<|end|><|start|>assistant<|channel|>final<|message|>three"),
            "one\ntwo|three");
  EXPECT_EQ(ParseEveryWay(syntax, "<|channel|>commentary to=functions.f json<|message|>{}<|call|>"),
            "|<|channel|>commentary to=functions.f json<|message|>{}");
  EXPECT_EQ(ParseEveryWay(syntax, "no header"), "|no header");
  EXPECT_EQ(ParseEveryWay(syntax, "to"), "|to");
  EXPECT_EQ(ParseEveryWay(syntax, "<|channel|>anal"), "|") << "a header that was cut";
  syntax.has_reasoning = false;
  EXPECT_TRUE(syntax.is_plain());
}

TEST(CallFormatsTest, SpacesOfAnyLengthTakeLinearTime) {
  const std::string spaces(2'000'000, ' ');
  const std::string begin = "<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>";
  const AnswerSyntax syntax = Syntax(ToolCallFormat::kQwen3Xml);
  AnswerParser parser(&syntax, [](size_t) { return "id"; });
  AnswerText all = parser.Add(begin, /*is_last=*/false);
  for (size_t at = 0; at < spaces.size(); at += 4) Append(parser.Add("    ", /*is_last=*/false), &all);
  EXPECT_EQ(Described(all), R"(| | f {"s": "x\n</parameter>)" + spaces) << "no tag follows the one behind the value";
}

}  // namespace
}  // namespace quire
