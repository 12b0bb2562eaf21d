// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/forced_calls.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/openai/answer_parser.h"
#include "gateway/openai/field_reader.h"
#include "gmock/gmock.h"
#include "grammar/grammar.h"
#include "grammar/token_table.h"
#include "gtest/gtest.h"
#include "tests/grammar/random_text.h"
#include "tests/grammar/trial_vocabulary.h"
#include "tests/random.h"

namespace quire {
namespace {

using testing::StartsWith;

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

const std::vector<CallableTool> kPlain = {
    {.name = "go",
     .parameters = R"({"type": "object", "required": ["city", "n", "note"], "$defs": {"n": {"type": "integer"}},
                       "properties": {"city": {"enum": ["Rome", "New York", 7]}, "n": {"$ref": "#/$defs/n"},
                                      "note": {"type": "string"},
                                      "tags": {"type": "array", "items": {"type": "string"}},
                                      "flag": {"type": ["boolean", "null"]}, "any": {"type": ["string", "number"]}}})",
     .field = "tools[0]"},
    {.name = "stop", .parameters = R"({"type": "object", "additionalProperties": false})", .field = "tools[1]"},
    {.name = "may",
     .parameters = R"({"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "boolean"}}})",
     .field = "tools[2]"},
};

// Whether the arguments of a call of kPlain fit the schema of the tool.
bool Fits(const std::string& name, const Json& arguments) {
  const auto has = [&](const char* key, auto fits) { return arguments.contains(key) && fits(arguments[key]); };
  const auto may_have = [&](const char* key, auto fits) { return !arguments.contains(key) || fits(arguments[key]); };
  if (!arguments.is_object()) return false;
  if (name == "stop") return arguments.empty();
  if (name == "may") {
    return may_have("x", [](const Json& x) { return x.is_number(); }) &&
           may_have("y", [](const Json& y) { return y.is_boolean(); });
  }
  return has("city", [](const Json& city) { return city == "Rome" || city == "New York" || city == 7; }) &&
         has("n", [](const Json& n) { return n.is_number_integer(); }) &&
         has("note", [](const Json& note) { return note.is_string(); }) &&
         may_have("tags", [](const Json& tags) { return tags.is_array(); }) &&
         may_have("flag", [](const Json& flag) { return flag.is_boolean() || flag.is_null(); }) &&
         may_have("any", [](const Json& any) { return any.is_string() || any.is_number(); });
}

// A vocabulary of bytes and of the tags of a format, some of which are special tokens.
std::shared_ptr<const grammar::TokenTable> VocabularyOf(const CallSyntax& format, const ReasoningSyntax& reasoning) {
  std::vector<std::string> tokens = {"", ""};
  for (int byte = 0; byte < 255; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const absl::string_view tag :
       {format.open, format.close, format.begin, format.end, format.key_begin, format.value_end, format.name_end,
        format.quote, reasoning.begin, reasoning.end, absl::string_view("<|channel|>"),
        absl::string_view("<|message|>"), absl::string_view("<|end|>"), absl::string_view("true"),
        absl::string_view("\n\n")}) {
    if (tag.empty()) continue;
    tokens.emplace_back(tag);
    tokens.push_back(grammar::SpecialTokenBytes({tag.data(), tag.size()}));
  }
  return std::make_shared<grammar::TokenTable>(std::move(tokens), std::vector<TokenId>{1});
}

// Draws answers with thoughts and calls of kPlain. Returns the largest number of calls.
size_t CheckPlainAnswers(const CallSyntax& format, bool is_single, const ReasoningSyntax& reasoning,
                         Thoughts thoughts) {
  grammar::TokenMasks masks(VocabularyOf(format, reasoning));
  const auto automaton = Compiled(ForcedCallGrammar(format.format, kPlain, is_single, thoughts, reasoning));
  if (automaton == nullptr) return 0;
  AnswerSyntax syntax = {.has_reasoning = true,
                         .begins_in_reasoning = thoughts == Thoughts::kBegun,
                         .reasoning = &reasoning,
                         .tool_calls = {.format = format.format,
                                        .tools = {"go", "stop", "may"},
                                        .is_single = is_single,
                                        .begins_in_call = ForcedCallsBeginBehindTag(format.format),
                                        .is_forced = true}};
  for (const CallableTool& tool : kPlain) {
    const Json parameters = Json::parse(tool.parameters);
    SchemaDocument schema(parameters);
    SchemaTypes types;
    syntax.tool_calls.parameters[tool.name] = ParameterTypesOf(&schema, &types);
  }
  Random random(5);
  size_t most_calls = 0;
  for (int i = 0; i < 20; ++i) {
    std::optional<std::string> text = grammar::RandomText(automaton, 150, &masks, &random);
    EXPECT_TRUE(text.has_value());
    if (!text.has_value()) return 0;
    std::erase(*text, '\xFF');  // The marks of special tokens.
    SCOPED_TRACE(*text);
    AnswerParser parser(&syntax, [](size_t call) { return absl::StrCat("id", call); });
    AnswerText answer;
    for (size_t at = 0; at < text->size(); at += 5) {
      Append(parser.Add(absl::string_view(*text).substr(at, 5), at + 5 >= text->size()), &answer);
    }
    EXPECT_EQ(answer.content, "");
    EXPECT_TRUE(parser.has_whole_calls());
    for (const ToolCallDelta& call : answer.calls) {
      EXPECT_TRUE(Fits(call.name, Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false)))
          << call.name << " " << call.arguments;
    }
    most_calls = std::max(most_calls, answer.calls.size());
  }
  return most_calls;
}

TEST(ForcedCallsTest, InEveryFormatTheParserReadsTheCallsOfTheGrammar) {
  for (const CallSyntax& format : CallSyntaxes()) {
    SCOPED_TRACE(format.name);
    const bool has_channels = format.shape == CallShape::kChannels;
    const ReasoningSyntax& reasoning = *ReasoningSyntaxOf(has_channels ? "openai" : "think");
    EXPECT_EQ(CheckPlainAnswers(format, /*is_single=*/true, reasoning, Thoughts::kNone), 1u);
    EXPECT_EQ(CheckPlainAnswers(format, /*is_single=*/true, reasoning, Thoughts::kOptional), 1u);
    const size_t most_calls = CheckPlainAnswers(format, /*is_single=*/false, reasoning, Thoughts::kNone);
    if (has_channels) {
      EXPECT_EQ(most_calls, 1u) << "the end of a call ends the answer";
    } else {
      EXPECT_GT(most_calls, 1u);
    }
  }
}

TEST(ForcedCallsTest, OnlyTheTagOfMistralIsLeftOut) {
  EXPECT_FALSE(ForcedCallsBeginBehindTag(ToolCallFormat::kNone)) << "the format is not known yet";
  for (const CallSyntax& format : CallSyntaxes()) {
    EXPECT_EQ(ForcedCallsBeginBehindTag(format.format), format.name == "mistral") << format.name;
  }
}

TEST(ForcedCallsTest, ThoughtsMayHaveOtherTags) {
  const CallSyntax& hermes = SyntaxOf(ToolCallFormat::kHermes);
  for (const ReasoningSyntax& reasoning : ReasoningSyntaxes()) {
    SCOPED_TRACE(reasoning.name);
    if (reasoning.is_channel()) continue;
    EXPECT_EQ(CheckPlainAnswers(hermes, /*is_single=*/true, reasoning, Thoughts::kOptional), 1u);
    EXPECT_EQ(CheckPlainAnswers(hermes, /*is_single=*/true, reasoning, Thoughts::kBegun), 1u);
  }
}

TEST(ForcedCallsTest, TheSamplesOfFormatsAreTextsOfTheGrammar) {
  const std::vector<CallableTool> tools = {
      {.name = "f",
       .parameters = R"({"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}})",
       .field = "tools[0]"},
      {.name = "g", .parameters = R"({"type": "object", "additionalProperties": false})", .field = "tools[1]"}};
  const auto accepts = [&](ToolCallFormat format, const std::string& text) {
    return grammar::Matches(Compiled(ForcedCallGrammar(format, tools, /*is_single=*/false, Thoughts::kNone)), text);
  };
  EXPECT_TRUE(accepts(ToolCallFormat::kQwen3Xml,
                      "<tool_call>\n<function=f>\n<parameter=a>\n7\n</parameter>\n<parameter=s>\n<b>\n</parameter>\n"
                      "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>"));
  EXPECT_FALSE(accepts(ToolCallFormat::kQwen3Xml,
                       "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"));
  EXPECT_TRUE(
      accepts(ToolCallFormat::kGlm45, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>7 </arg_value>\n</tool_call>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kGlm47,
                      "<tool_call>f<arg_key>s</arg_key><arg_value></arg_value></tool_call><tool_call>g</tool_call>"));
  EXPECT_TRUE(
      accepts(ToolCallFormat::kOpenai, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 7}"));
  EXPECT_TRUE(accepts(ToolCallFormat::kMinimaxM2,
                      "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">7</parameter>\n</invoke>\n"
                      "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kDeepseekV31,
                      "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 7}<｜tool▁call▁end｜>"
                      "<｜tool▁calls▁end｜>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kKimiK2,
                      "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:12<|tool_call_argument_begin|>{}"
                      "<|tool_call_end|><|tool_calls_section_end|>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kLfm2, "<|tool_call_start|>[f(s=\"x\"), g()]<|tool_call_end|>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kLfm2, "<|tool_call_start|>[f(a=1, s=\"x\")]<|tool_call_end|>"));
  EXPECT_TRUE(accepts(ToolCallFormat::kApertus, R"(<|tools_prefix|>[{"f": {"a": 7}}, {"g": {}}]<|tools_suffix|>)"));
  EXPECT_TRUE(accepts(ToolCallFormat::kGemma4,
                      R"(<|tool_call>call:f{a:7,s:<|"|>x{"<|"|>}<tool_call|><|tool_call>call:g{}<tool_call|>)"));
  EXPECT_FALSE(accepts(ToolCallFormat::kGemma4, R"(<|tool_call>call:f{a:<|"|>7<|"|>}<tool_call|>)"));
}

TEST(StrictCallsTest, ATextBecomesACallWithTheTag) {
  std::vector<CallableTool> tools = {kPlain[0], kPlain[1]};
  tools[0].is_strict = false;
  const auto accepts = [&](const std::string& text, Thoughts thoughts = Thoughts::kNone) {
    return grammar::Matches(Compiled(*StrictCallGrammar(ToolCallFormat::kQwen3Xml, tools, true, thoughts)), text);
  };
  EXPECT_TRUE(accepts(""));
  EXPECT_TRUE(accepts("no call: <tool_ <<tool_cal <b>"));
  EXPECT_FALSE(accepts("the tag <tool_call> begins a call"));
  const std::string argument = "<parameter=a>\n1\n</parameter>\n";
  const auto call = [](const char* name, const std::string& arguments) {
    return absl::StrCat("<tool_call>\n<function=", name, ">\n", arguments, "</function>\n</tool_call>");
  };
  EXPECT_TRUE(accepts("Look:<\n\n" + call("stop", "")));
  EXPECT_FALSE(accepts("Look: " + call("stop", "") + " text"));
  EXPECT_FALSE(accepts(call("stop", argument)));
  EXPECT_TRUE(accepts(call("go", argument))) << "it is not strict";
  EXPECT_TRUE(accepts("the <tool_call> comes</b> next</think>\n" + call("stop", ""), Thoughts::kBegun));
  EXPECT_FALSE(accepts("thoughts", Thoughts::kBegun));
  EXPECT_TRUE(accepts("<think>a <tool_call></think>x", Thoughts::kOptional));
}

TEST(StrictCallsTest, FormatsWhoseTagAGrammarKnows) {
  for (const CallSyntax& format : CallSyntaxes()) {
    const auto grammar = StrictCallGrammar(format.format, kPlain, /*is_single=*/false, Thoughts::kOptional);
    const bool has_none =
        format.name == "llama3" || format.name == "mistral" || format.name == "openai" || format.name == "deepseek_v32";
    EXPECT_EQ(grammar.has_value(), !has_none) << format.name;
    if (!grammar.has_value()) continue;
    EXPECT_TRUE(grammar::Matches(Compiled(*grammar), "only text")) << format.name;
  }
  const ReasoningSyntax& mistral = *ReasoningSyntaxOf("mistral");
  EXPECT_FALSE(StrictCallGrammar(ToolCallFormat::kHermes, kPlain, true, Thoughts::kOptional, mistral).has_value());
}

TEST(ForcedCallsTest, SpecialTokensAreTags) {
  const std::string open = grammar::SpecialTokenBytes("<|tools_prefix|>");
  const auto automaton =
      Compiled(ForcedCallGrammar(ToolCallFormat::kApertus, kPlain, /*is_single=*/true, Thoughts::kNone));
  EXPECT_TRUE(grammar::Matches(automaton, open + R"([{"stop": {}}])" + grammar::SpecialTokenBytes("<|tools_suffix|>")));
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

// Returns a tool whose arguments refer to one of the definitions.
CallableTool WithDefinitions(int num_arguments, const std::string& description) {
  Json schema = {{"type", "object"},
                 {"$defs",
                  {{"used", {{"type", "array"}, {"items", {{"$ref", "#/$defs/a~1b"}}}}},
                   {"a/b", {{"type", "integer"}, {"description", description}}},
                   {"other", {{"type", "string"}, {"description", std::string(10'000, 'x')}}}}}};
  for (int i = 0; i < num_arguments; ++i) schema["properties"][absl::StrCat("p", i)] = {{"$ref", "#/$defs/used"}};
  return {.name = "f", .parameters = Dump(schema), .field = "tools[0]"};
}

TEST(ForcedCallsTest, AnArgumentHasTheDefinitionsThatItNeeds) {
  for (const ToolCallFormat format : {ToolCallFormat::kQwen3Xml, ToolCallFormat::kLfm2, ToolCallFormat::kGemma4}) {
    const std::string grammar = ForcedCallGrammar(format, {WithDefinitions(2, "d")}, true, Thoughts::kNone);
    EXPECT_LT(grammar.size(), 2000u);
    Compiled(grammar);
  }
}

// One request made hundreds of copies of a long definition, and a text that grew with the square of the arguments.
TEST(ForcedCallsTest, AGrammarThatIsTooLongIsNotMadeToItsEnd) {
  const std::string description(20'000, 'd');
  for (const ToolCallFormat format : {ToolCallFormat::kQwen3Xml, ToolCallFormat::kLfm2, ToolCallFormat::kGemma4}) {
    const std::string grammar = ForcedCallGrammar(format, {WithDefinitions(2000, description)}, true, Thoughts::kNone);
    EXPECT_GT(grammar.size(), kMaxCallGrammarBytes);
    EXPECT_LT(grammar.size(), 4 * kMaxCallGrammarBytes);
    EXPECT_LT(ForcedCallGrammar(format, {WithDefinitions(2000, "d")}, true, Thoughts::kNone).size(),
              4 * kMaxCallGrammarBytes);
  }
}

TEST(ForcedCallsTest, NamesThatAnAnswerCannotHoldAreRefused) {
  const auto error = [](ToolCallFormat format, const std::string& tool, const std::string& argument) {
    const Json schema = {{"type", "object"}, {"properties", {{argument, Json::object()}}}};
    const auto found = UnwritableName(format, {{.name = tool, .parameters = Dump(schema), .field = "tools[3]"}});
    return found.has_value() ? found->message : "";
  };
  EXPECT_EQ(error(ToolCallFormat::kQwen3Xml, "a>b", "c"),
            "tools[3] has the name \"a>b\", which a call in the format qwen3_xml of this model cannot hold");
  EXPECT_EQ(error(ToolCallFormat::kLfm2, "f", "$filter"),
            "tools[3] has the argument \"$filter\", which a call in the format lfm2 of this model cannot hold");
  for (const ToolCallFormat format : {ToolCallFormat::kQwen3Xml, ToolCallFormat::kGlm45, ToolCallFormat::kSeedOss}) {
    for (const char* name : {"", "a\nb", "</parameter>", "<"}) {
      EXPECT_NE(error(format, name, "c"), "") << name;
      EXPECT_NE(error(format, "f", name), "") << name;
    }
  }
  EXPECT_NE(error(ToolCallFormat::kOpenai, "a b", "c"), "");
  EXPECT_NE(error(ToolCallFormat::kLfm2, "\u00e9", "c"), "");
  for (const ToolCallFormat format : {ToolCallFormat::kQwen3Xml, ToolCallFormat::kLfm2, ToolCallFormat::kOpenai}) {
    EXPECT_EQ(error(format, "mail.send-it_2", "Content-Type"), "");
  }
  EXPECT_EQ(error(ToolCallFormat::kHermes, "a>b \n", "</parameter>"), "");
}

TEST(ForcedCallsTest, AnErrorNamesTheToolAndTheKeyword) {
  for (const std::string field : {"tools[1]", "tools[1].tools[0]"}) {
    const std::string text = ForcedCallGrammar(
        ToolCallFormat::kHermes,
        {kCallable[0], {.name = "f", .parameters = R"({"type": "object", "disallow": {}})", .field = field}}, true,
        Thoughts::kNone);
    const auto automaton = grammar::Compile({.kind = grammar::Source::Kind::kEbnf, .text = text});
    std::string description(automaton.status().message());
    EXPECT_EQ(TakeParametersField("parameters", &description), field + ".parameters");
    EXPECT_THAT(description, StartsWith("at #/disallow: the keyword \"disallow\" is not supported"));
  }
}

}  // namespace
}  // namespace quire
