// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_OPENAI_FORMAT_SAMPLES_H_
#define QUIRE_TESTS_GATEWAY_OPENAI_FORMAT_SAMPLES_H_

#include <string>
#include <vector>

#include "gateway/openai/answer_parser.h"

namespace quire {

// What a model writes in a format, and what it means.
struct FormatSample {
  ToolCallFormat format;
  const char* reasoning_format;  // Empty: the text has no thoughts.
  const char* text;
  // "reasoning|content", and behind it each call as " | name arguments".
  const char* meaning;
};

// The letters z and q and the digit 7 are in thoughts, contents and arguments only, never in tags and names. All
// formats have a sample, and each has the calls that kSampleTools knows.
inline const FormatSample kFormatSamples[] = {
    {ToolCallFormat::kHermes, "think",
     "<think>\nzq\n</think>\n\nsz <b\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 7, \"s\": "
     "\"}</tool_call>\"}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
     R"(zq|sz <b | f {"a": 7, "s": "}</tool_call>"} | g {})"},
    {ToolCallFormat::kLlama3, "", R"({"name": "f", "parameters": {"a": 7}}; {"name": "g", "parameters": {}})",
     R"(| | f {"a": 7} | g {})"},
    {ToolCallFormat::kMistral, "mistral", R"([THINK]zq [7][/THINK]sz[TOOL_CALLS]f[ARGS]{"a": 7}[TOOL_CALLS]g[ARGS]{})",
     R"(zq [7]|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kQwen3Xml, "think",
     "zq</think>\n\nsz\n\n<tool_call>\n<function=f>\n<parameter=a>\n7\n</parameter>\n<parameter=s>\nz\n\"q\"\n"
     "</parameter> <function=g>\n</function>\n</parameter>\n</function>\n</tool_call>\n"
     "<tool_call>\n<function=g>\n</function>\n</tool_call>",
     R"(zq|sz | f {"a": 7, "s": "z\n\"q\"\n</parameter> <function=g>\n</function>"} | g {})"},
    {ToolCallFormat::kQwen3Xml, "",
     "sz\n<function=f>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{'q': [7, None]}\n</parameter>\n"
     "<parameter=u>\n07z\n</parameter>\n</function>\n</tool_call>",
     R"(|sz | f {"b": true, "o": {"q":[7,null]}, "u": "07z"})"},
    {ToolCallFormat::kGlm45, "think",
     "\n<think>zq</think>\nsz\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>7</arg_value>\n<arg_key>s</arg_key>\n"
     "<arg_value> 7 <arg_value></arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
     R"(zq|sz | f {"a": 7, "s": " 7 <arg_value>"} | g {})"},
    {ToolCallFormat::kGlm47, "think",
     "zq</think>sz<tool_call>f<arg_key>l</arg_key><arg_value>[7, \"z\"]</arg_value><arg_key>s</arg_key><arg_value>"
     "\nq\n</arg_value></tool_call><tool_call>g</tool_call>",
     R"(zq|sz | f {"l": [7, "z"], "s": "\nq\n"} | g {})"},
    {ToolCallFormat::kOpenai, "openai",
     "<|channel|>analysis<|message|>zq<|end|><|start|>assistant<|channel|>commentary<|message|>sz<|end|><|start|>"
     "assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 7}<|call|>",
     R"(zq|sz | f {"a": 7})"},
    {ToolCallFormat::kOpenai, "openai", " to=functions.f<|channel|>analysis code<|message|>{\"s\": \"<|end|>\"}",
     R"(| | f {"s": "<|end|>"})"},
    {ToolCallFormat::kOpenai, "openai",
     "<|channel|>analysis<|message|>zq<|end|><|start|>assistant<|channel|>final<|message|>sz < 7<|return|>",
     R"(zq|sz < 7)"},
    {ToolCallFormat::kMinimaxM2, "think",
     "zq\n</think>\n\nsz\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">7</parameter>\n"
     "<parameter name=\"s\">z <parameter></parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
     R"(zq|sz | f {"a": 7, "s": "z <parameter>"} | g {})"},
    {ToolCallFormat::kDeepseekV3, "think",
     "zq</think>sz<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 7}\n```"
     "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     R"(zq|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kDeepseekV31, "think",
     "zq</think>sz<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "7}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g"
     "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     R"(zq|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kDeepseekV32, "think",
     "zq</think>sz\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"u\" "
     "string=\"true\">7"
     "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
     "</｜DSML｜function_calls>",
     R"(zq|sz | f {"u": "7", "n": 7})"},
    {ToolCallFormat::kKimiK2, "think",
     "<think>zq</think>sz<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
     "{\"a\": 7}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     R"(zq|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kSeedOss, "seed_oss",
     "<seed:think>zq</seed:think>\nsz\n<seed:tool_call>\n<function=f>\n<parameter=a>7</parameter>\n<parameter=s>q\nz"
     "</parameter>\n</function>\n</seed:tool_call>",
     R"(zq|sz | f {"a": 7, "s": "q\nz"})"},
    {ToolCallFormat::kLfm2, "", R"(sz<|tool_call_start|>[f(a=7, s='q<|tool_call_end|>"z\''), g()]<|tool_call_end|>)",
     R"(|sz | f {"a":7,"s":"q<|tool_call_end|>\"z'"} | g {})"},
    {ToolCallFormat::kLfm2, "", R"(<|tool_call_start|>[{"name": "f", "arguments": {"a": 7}}]<|tool_call_end|>)",
     R"(| | f {"a":7})"},
    {ToolCallFormat::kGranite, "",
     R"(<|tool_call|>[{"name": "f", "arguments": {"a": 7}}, {"name": "g", "arguments": {}}])",
     R"(| | f {"a": 7} | g {})"},
    {ToolCallFormat::kApertus, "apertus",
     R"(<|inner_prefix|>zq<|inner_suffix|>sz<|tools_prefix|>[{"f": {"a": 7}}, {"g": {}}]<|tools_suffix|>)",
     R"(zq|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kMinimax, "",
     "sz\n<tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 7}}\n{\"name\": \"g\", \"arguments\": "
     "{}}\n</tool_calls>",
     R"(|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kApriel, "",
     R"(sz<tool_calls>[{"name": "f", "arguments": {"a": 7}}, {"name": "g", "arguments": {}}]</tool_calls>)",
     R"(|sz | f {"a": 7} | g {})"},
    {ToolCallFormat::kGigachat3, "", R"(sz<|function_call|>{"name": "f", "arguments": {"a": 7}})",
     R"(|sz | f {"a": 7})"},
    {ToolCallFormat::kGemma4, "gemma4",
     "<|channel>thought\nzq\n<channel|>sz <b call:f{<|tool_call>call:f{a:7,s:<|\"|>z}<tool_call|> \"q\"\n<|\"|>,o:{k:"
     "[7,<|\"|>q<|\"|>,{}],<|\"|>z q<|\"|>:null},b:true}<tool_call|><|tool_call>call:g{}<tool_call|>",
     R"(zq|sz <b call:f{ | f {"a": 7, "s": "z}<tool_call|> \"q\"\n", "o": {"k": [7, "q", {}], "z q": null}, "b": true})"
     R"( | g {})"},
    {ToolCallFormat::kGemma4, "gemma4",
     "<channel|>sz\n<|tool_call>call:f{ u: 07z , b: True, \"s\":\"z\\\"7\", l: [ 7, z ,]}<tool_call|>",
     R"(|sz | f {"u": "07z", "b": true, "s": "z\"7", "l": [7, "z"]})"},
    {ToolCallFormat::kFunctionGemma, "",
     "sz<start_function_call>call:f{a:7,s:<escape>{q}<escape>}<end_function_call><start_function_call>call:g{}"
     "<end_function_call>",
     R"(|sz | f {"a": 7, "s": "{q}"} | g {})"},
};

// The syntax of a sample, for a client that has the tools f and g.
inline AnswerSyntax SyntaxOfSample(ToolCallFormat format, absl::string_view reasoning_format, absl::string_view text) {
  AnswerSyntax syntax;
  if (const ReasoningSyntax* const reasoning = ReasoningSyntaxOf(reasoning_format)) {
    syntax.has_reasoning = true;
    syntax.reasoning = reasoning;
    // A text without the first tag begins behind it.
    syntax.begins_in_reasoning = !reasoning->is_channel() && text.find(reasoning->begin) == text.npos;
  }
  syntax.tool_calls = {.format = format,
                       .tools = {"f", "g"},
                       .parameters = {{"f",
                                       {{"a", kNumberType},
                                        {"s", kStringType},
                                        {"b", kBooleanType},
                                        {"o", kObjectType},
                                        {"l", kArrayType},
                                        {"u", kStringType | kNumberType}}},
                                      {"g", {}}}};
  return syntax;
}

inline std::vector<FormatSample> FormatSamples() {
  return {std::begin(kFormatSamples), std::end(kFormatSamples)};
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_OPENAI_FORMAT_SAMPLES_H_
