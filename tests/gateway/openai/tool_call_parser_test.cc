// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tool_call_parser.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// The content, and behind it each call as " | id name arguments".
std::string Parsed(const ToolCallOptions& options, const std::string& text, size_t piece_bytes) {
  ToolCallParser parser(&options, [](size_t index) { return absl::StrCat("id", index); });
  AnswerText all;
  for (size_t i = 0; i < text.size(); i += piece_bytes) {
    AnswerText more;
    parser.Add(absl::string_view(text).substr(i, piece_bytes), i + piece_bytes >= text.size(), &more);
    Append(more, &all);
  }
  std::string result = all.content;
  for (const ToolCallDelta& call : all.calls)
    absl::StrAppend(&result, " | ", call.id, " ", call.name, " ", call.arguments);
  EXPECT_EQ(parser.num_calls(), all.calls.size());
  return result;
}

// What a text becomes, which must not depend on how it is divided into pieces.
std::string Parse(const ToolCallOptions& options, const std::string& text) {
  const std::string whole = Parsed(options, text, text.size());
  for (const size_t piece_bytes : {1, 2, 3, 7, 20}) EXPECT_EQ(Parsed(options, text, piece_bytes), whole) << piece_bytes;
  return whole;
}

const ToolCallOptions kHermes{.format = ToolCallFormat::kHermes, .tools = {"f", "g"}};
const ToolCallOptions kLlama3{.format = ToolCallFormat::kLlama3, .tools = {"f", "g"}};
const ToolCallOptions kMistral{.format = ToolCallFormat::kMistral, .tools = {"f", "g"}};

TEST(ToolCallParserTest, HermesCallsAreBetweenTags) {
  EXPECT_EQ(
      Parse(kHermes, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\", \"b\": [1, {}]}}\n</tool_call>"),
      " | id0 f {\"a\": \"}\\\"\", \"b\": [1, {}]}");
  EXPECT_EQ(Parse(kHermes,
                  "I will look.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n"
                  "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 2}}\n</tool_call>\n"),
            "I will look. | id0 f {} | id1 g {\"x\": 2}");
}

TEST(ToolCallParserTest, ACallHasItsPlaceInTheContent) {
  ToolCallParser parser(&kHermes, [](size_t) { return "id"; });
  AnswerText text;
  parser.Add("one <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>two <tool_call>{\"name\": \"g\", ", false,
             &text);
  parser.Add("\"arguments\": {}}</tool_call>", true, &text);
  EXPECT_EQ(text.content, "onetwo");
  ASSERT_EQ(text.calls.size(), 2u);
  EXPECT_EQ(text.calls[0].content_begin, 3u);
  EXPECT_EQ(text.calls[1].content_begin, 6u);
}

TEST(ToolCallParserTest, TheOrderOfMembersAndTheFormOfArgumentsAreFree) {
  EXPECT_EQ(Parse(kHermes, R"(<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>)"), R"( | id0 f {"a": 1})");
  EXPECT_EQ(Parse(kHermes, R"(<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>)"),
            R"( | id0 f {"a": 1})");
  EXPECT_EQ(Parse(kHermes, R"(<tool_call>{"name": "f"}</tool_call>)"), " | id0 f {}");
}

TEST(ToolCallParserTest, WhatIsNoCallStaysText) {
  for (const char* text :
       {"no call", "a < b <tool", "<tool_call>", "<tool_call>f()</tool_call>",
        "<tool_call>{\"nam\": \"f\"}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call> x",
        "<tool_call>{\"name\": ", " \n ", "x \n"}) {
    EXPECT_EQ(Parse(kHermes, text), text);
  }
  for (const char* text :
       {"{\"answer\": 42}", "{\"name\": \"h\", \"parameters\": {}}", "{\"name\": \"f\"", "{ x", " {", "hello {"}) {
    EXPECT_EQ(Parse(kLlama3, text), text);
  }
  for (const char* text : {"[TOOL_CALLS] f", "[TOOL_CALLS][1]", "[TOOL", "[TOOL_CALLS][", "[TOOL_CALLS]"}) {
    EXPECT_EQ(Parse(kMistral, text), text);
  }
}

// Functions that write a value recurse, so these would end the gateway.
TEST(ToolCallParserTest, AnObjectThatIsNestedTooDeeplyIsNoCall) {
  const auto object = [](const std::string& name, size_t depth) {
    return absl::StrCat("{\"name\": \"", name, "\", \"arguments\": {\"a\": ", std::string(depth, '['),
                        std::string(depth, ']'), "}}");
  };
  const std::string unknown = "<tool_call>" + object("h", 300'000) + "</tool_call>";
  EXPECT_EQ(Parsed(kHermes, unknown, unknown.size()), unknown);

  const ToolCallOptions lfm2{.format = ToolCallFormat::kLfm2, .tools = {"f"}};
  const auto list = [&](size_t depth) {
    const std::string text = "<|tool_call_start|>[" + object("f", depth) + "]<|tool_call_end|>";
    return Parsed(lfm2, text, text.size());
  };
  EXPECT_EQ(list(3), " | id0 f {\"a\":[[[]]]}");
  EXPECT_EQ(list(300'000).find(" | "), std::string::npos);
}

TEST(ToolCallParserTest, ACallThatIsCutKeepsWhatHasCome) {
  EXPECT_EQ(Parse(kHermes, R"(<tool_call>{"name": "f", "arguments": {"a": "lon)"), R"( | id0 f {"a": "lon)");
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS]f[ARGS]{"a": )"), R"( | id0 f {"a": )");
}

TEST(ToolCallParserTest, ACallThatWasForcedAndCutIsNoContent) {
  ToolCallOptions hermes = kHermes, llama3 = kLlama3, mistral = kMistral;
  for (ToolCallOptions* options : {&hermes, &llama3, &mistral}) options->is_forced = true;
  mistral.begins_in_call = true;
  for (const char* text : {"<to", "<tool_call>", "<tool_call>\n{\"name\": \"", "<tool_call>\n{\"name\": \"f"}) {
    EXPECT_EQ(Parse(hermes, text), "") << text;
  }
  EXPECT_EQ(Parse(llama3, R"({"name": "f)"), "");
  EXPECT_EQ(Parse(mistral, R"([{"name": "f)"), "");
  EXPECT_EQ(Parse(hermes, R"(<tool_call>{"name": "f", "arguments": {"a")"), R"( | id0 f {"a")");
  EXPECT_EQ(Parse(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n<tool_ca"), " | id0 f {}");
  hermes.tools = {"f"};
  EXPECT_EQ(Parse(hermes, "<tool_call>\n{\"na"), "") << "nobody has called the only tool";
}

TEST(ToolCallParserTest, LlamaWritesOneObjectOrSeveralWithSemicolons) {
  EXPECT_EQ(Parse(kLlama3, R"({"name": "f", "parameters": {"a": 1}})"), R"( | id0 f {"a": 1})");
  EXPECT_EQ(Parse(kLlama3,
                  "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}; "
                  "{\"name\": \"g\", \"parameters\": {\"b\": 2}}"),
            R"( | id0 f {} | id1 g {"b": 2})");
  EXPECT_EQ(Parse(kLlama3, R"(Let me see.<|python_tag|>{"name": "g", "parameters": {}})"), "Let me see. | id0 g {}");
}

TEST(ToolCallParserTest, LlamaWritesPythonBehindItsTag) {
  const ToolCallOptions with_search{.format = ToolCallFormat::kLlama3, .tools = {"brave_search"}};
  EXPECT_EQ(Parse(with_search, R"x(<|python_tag|>brave_search.call(query="a, (b)", count=3))x"),
            R"x( | id0 brave_search {"query":"a, (b)","count":3})x");
  EXPECT_EQ(Parse(kLlama3, "<|python_tag|>print(1)"), "<|python_tag|>print(1)");
  const ToolCallOptions with_python{.format = ToolCallFormat::kLlama3, .tools = {"python"}};
  EXPECT_EQ(Parse(with_python, "<|python_tag|>print('x')\n"), R"x( | id0 python {"code":"print('x')"})x");
}

TEST(ToolCallParserTest, MistralWritesAListOrANameBeforeTheArguments) {
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])"),
            R"( | id0 f {"a": 1} | id1 g {})");
  EXPECT_EQ(Parse(kMistral, R"(Well.[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]g{})"), R"(Well. | id0 f {"a": 1} | id1 g {})");
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{"a": 1})"), R"( | abc123def f {"a": 1})");
}

TEST(ToolCallParserTest, WithoutParallelCallsOnlyTheFirstOneCounts) {
  ToolCallOptions single = kHermes;
  single.is_single = true;
  EXPECT_EQ(Parse(single, R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"
                          R"(<tool_call>{"name": "g", "arguments": {"a": 1}}</tool_call>)"),
            " | id0 f {}");
}

TEST(ToolCallParserTest, ArgumentsAreGivenOutAsTheyCome) {
  ToolCallParser parser(&kHermes, [](size_t) { return "id"; });
  AnswerText first;
  parser.Add(R"(<tool_call>{"name": "f", "arguments": {"a)", false, &first);
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "f");
  EXPECT_EQ(first.calls[0].arguments, R"({"a)");
  AnswerText second;
  parser.Add(R"(": 1}})", false, &second);
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_EQ(second.calls[0].id + second.calls[0].name, "");
  EXPECT_EQ(second.calls[0].arguments, R"(": 1})");
}

TEST(ToolCallParserTest, ATextMayBeginBehindTheTag) {
  ToolCallOptions options = kMistral;
  options.begins_in_call = true;
  EXPECT_EQ(Parse(options, R"([{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])"),
            R"( | id0 f {"a": 1} | id1 g {})");
}

TEST(ToolCallParserTest, ACallHasTheNameOfATool) {
  for (const char* text :
       {"The marker [TOOL_CALLS] is written before calls, and a set is {1, 2}.", "[TOOL_CALLS] h {\"a\": 1}",
        "[TOOL_CALLS]{}", "[TOOL_CALLS] {\"name\": \"\", \"arguments\": {}} x", "a [TOOL_CALLS]h[ARGS]{\"f\": {}} b"}) {
    EXPECT_EQ(Parse(kMistral, text), text);
  }
  for (const char* text :
       {R"(<tool_call>{"name": "", "arguments": {}}</tool_call>)", R"(<tool_call>{"name": "h"}</tool_call> x)",
        R"(  The tag <tool_call> {"name": "a name", "arguments": {"a": 1}} </tool_call> begins a call. )",
        R"(<tool_call>{"name": "f", "arguments": "Paris"}</tool_call>)",
        R"(<tool_call>{"name": "f", "arguments": "[1]"}</tool_call>)"}) {
    EXPECT_EQ(Parse(kHermes, text), text);
  }
  for (const char* text : {R"(<|python_tag|>{"name": "h", "parameters": {}})", R"(<|python_tag|>h.call(a=1))",
                           R"({"name": "", "parameters": {}})"}) {
    EXPECT_EQ(Parse(kLlama3, text), text);
  }
}

TEST(ToolCallParserTest, ACallBehindOneOfNoToolIsFound) {
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS]h{"a": 1} [TOOL_CALLS]f{"b": 2})"),
            R"([TOOL_CALLS]h{"a": 1} | id0 f {"b": 2})");
  EXPECT_EQ(Parse(kMistral, R"([TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "h", "arguments": {}}])"),
            R"(, {"name": "h", "arguments": {}}] | id0 f {})");
  EXPECT_EQ(Parse(kHermes, R"(<tool_call>{"name": "h"}</tool_call><tool_call>{"name": "f"}</tool_call>)"),
            R"(<tool_call>{"name": "h"}</tool_call> | id0 f {})");
}

TEST(ToolCallParserTest, CallsAreWholeUnlessTheTextEndsInOneOrItsArgumentsAreBroken) {
  const auto are_whole = [](ToolCallOptions options, const std::string& text) {
    ToolCallParser parser(&options, [](size_t) { return "id"; });
    AnswerText out;
    parser.Add(text, /*is_last=*/true, &out);
    return parser.calls_are_whole();
  };
  const std::string call = R"({"name": "f", "arguments": {"a": 1}})";
  for (const std::string& text : {"<tool_call>" + call, "<tool_call>" + call + "</tool_call>\n",
                                  "<tool_call>" + call + "</tool_call> x", std::string("no call")}) {
    EXPECT_TRUE(are_whole(kHermes, text)) << text;
  }
  for (const std::string& text :
       {std::string(R"(<tool_call>{"name": "f", "arguments": {"a": 1)"),
        "<tool_call>" + call + "</tool_call><tool_call>", "<tool_call>" + call + R"(</tool_call><tool_call>{"na)",
        std::string(R"(<tool_call>{"name": "f", "arguments": {"a": }}</tool_call>)")}) {
    EXPECT_FALSE(are_whole(kHermes, text)) << text;
  }
  EXPECT_TRUE(are_whole(kMistral, "[TOOL_CALLS][" + call + "]"));
  EXPECT_FALSE(are_whole(kMistral, R"([TOOL_CALLS]f{"a": )"));
  EXPECT_TRUE(are_whole(kLlama3, call + "; "));
  EXPECT_FALSE(are_whole(kLlama3, call + R"(; {"name": "f", "parameters": {)"));
  ToolCallOptions single = kHermes;
  single.is_single = true;
  EXPECT_TRUE(are_whole(single, "<tool_call>" + call + R"(</tool_call><tool_call>{"name": "f", "arguments": {)"))
      << "the client does not see the second call";
}

}  // namespace
}  // namespace quire
