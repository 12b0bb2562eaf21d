// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/call_syntax.h"

#include <cstddef>
#include <iterator>

#include "base/check.h"

namespace quire {
namespace {

constexpr CallSyntax kCalls[] = {
    {.format = ToolCallFormat::kHermes,
     .name = "hermes",
     .models = "Qwen 2.5, Qwen 3, QwQ, Hermes, Granite 4, Bielik",
     .example = R"(<tool_call>{"name": "f", "arguments": {...}}</tool_call>)",
     .shape = CallShape::kObject,
     .open = "<tool_call>\n",
     .close = "\n</tool_call>",
     .separator = "\n"},
    {.format = ToolCallFormat::kLlama3,
     .name = "llama3",
     .alias = "llama3_json",
     .models = "Llama 3.1 to 3.3",
     .example = R"({"name": "f", "parameters": {...}}; {...})",
     .shape = CallShape::kObject,
     .group = CallGroup::kRow,
     .open = "<|python_tag|>",
     .separator = "; ",
     .has_special_tags = true,
     .may_lack_open = true,
     .arguments_key = "parameters"},
    {.format = ToolCallFormat::kMistral,
     .name = "mistral",
     .models = "Mistral, Ministral, Magistral, Devstral",
     .example = R"([TOOL_CALLS][{"name": "f", "arguments": {...}}])",
     .shape = CallShape::kObject,
     .group = CallGroup::kList,
     .open = "[TOOL_CALLS]",
     .has_special_tags = true,
     .name_end = "[ARGS]"},
    {.format = ToolCallFormat::kQwen3Xml,
     .name = "qwen3_xml",
     .alias = "qwen3_coder",
     .models = "Qwen3-Coder, Qwen 3.5",
     .example = "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>",
     .shape = CallShape::kParameters,
     .open = "<tool_call>\n",
     .close = "</tool_call>",
     .separator = "\n",
     .begin = "<function=",
     .name_end = ">\n",
     .end = "</function>\n",
     .key_begin = "<parameter=",
     .key_end = ">\n",
     .value_end = "\n</parameter>\n"},
    {.format = ToolCallFormat::kGlm45,
     .name = "glm45",
     .models = "GLM 4.5 and 4.6, Ling 3",
     .example = "<tool_call>f <arg_key>a</arg_key> <arg_value>1</arg_value> </tool_call>",
     .shape = CallShape::kParameters,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .separator = "\n",
     .name_end = "\n",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>\n",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>\n"},
    {.format = ToolCallFormat::kGlm47,
     .name = "glm47",
     .models = "GLM 4.7",
     .example = "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>",
     .shape = CallShape::kParameters,
     .open = "<tool_call>",
     .close = "</tool_call>",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>"},
    {.format = ToolCallFormat::kOpenai,
     .name = "openai",
     .alias = "harmony",
     .models = "gpt-oss (harmony)",
     .example = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>",
     .shape = CallShape::kChannels,
     .has_special_tags = true,
     .name_prefix = "functions."},
    {.format = ToolCallFormat::kMinimaxM2,
     .name = "minimax_m2",
     .models = "MiniMax M2",
     .example = R"(<minimax:tool_call><invoke name="f"><parameter name="a">1</parameter></invoke></minimax:tool_call>)",
     .shape = CallShape::kParameters,
     .group = CallGroup::kRow,
     .open = "<minimax:tool_call>\n",
     .close = "</minimax:tool_call>",
     .has_special_tags = true,
     .begin = "<invoke name=\"",
     .name_end = "\">\n",
     .end = "</invoke>\n",
     .key_begin = "<parameter name=\"",
     .key_end = "\">",
     .value_end = "</parameter>\n"},
    {.format = ToolCallFormat::kDeepseekV3,
     .name = "deepseek_v3",
     .models = "DeepSeek V3 and R1",
     .example =
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f ```json {...} ```<｜tool▁call▁end｜>"
         "<｜tool▁calls▁end｜>",
     .shape = CallShape::kNamedObject,
     .group = CallGroup::kRow,
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .separator = "\n",
     .has_special_tags = true,
     .begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .name_end = "\n```json\n",
     .end = "\n```<｜tool▁call▁end｜>"},
    {.format = ToolCallFormat::kDeepseekV31,
     .name = "deepseek_v31",
     .models = "DeepSeek V3.1",
     .example =
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     .shape = CallShape::kNamedObject,
     .group = CallGroup::kRow,
     .open = "<｜tool▁calls▁begin｜>",
     .close = "<｜tool▁calls▁end｜>",
     .has_special_tags = true,
     .begin = "<｜tool▁call▁begin｜>",
     .name_end = "<｜tool▁sep｜>",
     .end = "<｜tool▁call▁end｜>"},
    {.format = ToolCallFormat::kDeepseekV32,
     .name = "deepseek_v32",
     .models = "DeepSeek V3.2",
     .example = R"(<｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a" string="false">1)"
                "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>",
     .shape = CallShape::kParameters,
     .group = CallGroup::kRow,
     .open = "<｜DSML｜function_calls>\n",
     .close = "</｜DSML｜function_calls>",
     .has_special_tags = true,
     .begin = "<｜DSML｜invoke name=\"",
     .name_end = "\">\n",
     .end = "</｜DSML｜invoke>\n",
     .key_begin = "<｜DSML｜parameter name=\"",
     .key_end = "\">",
     .value_end = "</｜DSML｜parameter>\n",
     .string_attribute = "\" string=\""},
    {.format = ToolCallFormat::kKimiK2,
     .name = "kimi_k2",
     .models = "Kimi K2",
     .example = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}"
                "<|tool_call_end|><|tool_calls_section_end|>",
     .shape = CallShape::kNamedObject,
     .group = CallGroup::kRow,
     .open = "<|tool_calls_section_begin|>",
     .close = "<|tool_calls_section_end|>",
     .has_special_tags = true,
     .begin = "<|tool_call_begin|>",
     .name_prefix = "functions.",
     .has_number = true,
     .name_end = "<|tool_call_argument_begin|>",
     .end = "<|tool_call_end|>"},
    {.format = ToolCallFormat::kSeedOss,
     .name = "seed_oss",
     .models = "Seed-OSS",
     .example = "<seed:tool_call><function=f><parameter=a>1</parameter></function></seed:tool_call>",
     .shape = CallShape::kParameters,
     .open = "<seed:tool_call>\n",
     .close = "</seed:tool_call>",
     .separator = "\n",
     .has_special_tags = true,
     .begin = "<function=",
     .name_end = ">\n",
     .end = "</function>\n",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>\n"},
    {.format = ToolCallFormat::kLfm2,
     .name = "lfm2",
     .models = "LFM 2",
     .example = R"(<|tool_call_start|>[f(a=1), g(b="x")]<|tool_call_end|>)",
     .shape = CallShape::kPython,
     .group = CallGroup::kList,
     .open = "<|tool_call_start|>",
     .close = "<|tool_call_end|>",
     .has_special_tags = true},
    {.format = ToolCallFormat::kGranite,
     .name = "granite",
     .models = "Granite 3",
     .example = R"(<|tool_call|>[{"name": "f", "arguments": {...}}])",
     .shape = CallShape::kObject,
     .group = CallGroup::kList,
     .open = "<|tool_call|>",
     .has_special_tags = true},
    {.format = ToolCallFormat::kApertus,
     .name = "apertus",
     .models = "Apertus",
     .example = R"(<|tools_prefix|>[{"f": {...}}]<|tools_suffix|>)",
     .shape = CallShape::kKeyedObject,
     .group = CallGroup::kList,
     .open = "<|tools_prefix|>",
     .close = "<|tools_suffix|>",
     .has_special_tags = true},
    {.format = ToolCallFormat::kMinimax,
     .name = "minimax",
     .models = "MiniMax M1",
     .example = R"(<tool_calls>{"name": "f", "arguments": {...}}</tool_calls>)",
     .shape = CallShape::kObject,
     .group = CallGroup::kRow,
     .open = "<tool_calls>\n",
     .close = "\n</tool_calls>",
     .separator = "\n"},
    {.format = ToolCallFormat::kApriel,
     .name = "apriel",
     .models = "Apriel 1.5",
     .example = R"(<tool_calls>[{"name": "f", "arguments": {...}}]</tool_calls>)",
     .shape = CallShape::kObject,
     .group = CallGroup::kList,
     .open = "<tool_calls>",
     .close = "</tool_calls>"},
    {.format = ToolCallFormat::kGigachat3,
     .name = "gigachat3",
     .models = "GigaChat 3.1",
     .example = R"(<|function_call|>{"name": "f", "arguments": {...}})",
     .shape = CallShape::kObject,
     .open = "<|function_call|>",
     .has_special_tags = true},
    {.format = ToolCallFormat::kGemma4,
     .name = "gemma4",
     .models = "Gemma 4",
     .example = R"(<|tool_call>call:f{a:1,b:<|"|>x<|"|>}<tool_call|>)",
     .shape = CallShape::kBareObject,
     .open = "<|tool_call>",
     .close = "<tool_call|>",
     .has_special_tags = true,
     .begin = "call:",
     .quote = "<|\"|>"},
    {.format = ToolCallFormat::kFunctionGemma,
     .name = "functiongemma",
     .models = "FunctionGemma",
     .example = "<start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call>",
     .shape = CallShape::kBareObject,
     .open = "<start_function_call>",
     .close = "<end_function_call>",
     .has_special_tags = true,
     .begin = "call:",
     .quote = "<escape>"},
};

// SyntaxOf finds a format by its number.
static_assert([] {
  size_t number = 0;
  for (const CallSyntax& syntax : kCalls) {
    if (static_cast<size_t>(syntax.format) != ++number) return false;
  }
  return true;
}());

constexpr ReasoningSyntax kReasoning[] = {
    {.name = "think", .begin = "<think>", .end = "</think>"},
    {.name = "mistral", .begin = "[THINK]", .end = "[/THINK]", .has_special_tags = true},
    {.name = "openai"},
    {.name = "seed_oss", .begin = "<seed:think>", .end = "</seed:think>", .has_special_tags = true},
    {.name = "apertus", .begin = "<|inner_prefix|>", .end = "<|inner_suffix|>", .has_special_tags = true},
    {.name = "gemma4", .begin = "<|channel>thought", .end = "<channel|>", .has_special_tags = true},
};

}  // namespace

absl::Span<const CallSyntax> CallSyntaxes() {
  return kCalls;
}

absl::Span<const ReasoningSyntax> ReasoningSyntaxes() {
  return kReasoning;
}

const CallSyntax& SyntaxOf(ToolCallFormat format) {
  const auto number = static_cast<size_t>(format);
  QUIRE_CHECK(number > 0 && number <= std::size(kCalls));
  return kCalls[number - 1];
}

ToolCallFormat ToolCallFormatOf(absl::string_view name) {
  for (const CallSyntax& syntax : kCalls) {
    if (syntax.name == name || (!name.empty() && syntax.alias == name)) return syntax.format;
  }
  return ToolCallFormat::kNone;
}

const ReasoningSyntax* ReasoningSyntaxOf(absl::string_view name) {
  for (const ReasoningSyntax& syntax : kReasoning) {
    if (syntax.name == name) return &syntax;
  }
  return nullptr;
}

}  // namespace quire
