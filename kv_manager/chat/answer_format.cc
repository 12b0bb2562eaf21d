// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/answer_format.h"

#include <algorithm>
#include <initializer_list>

namespace quire {
namespace {

bool Has(std::string_view source, std::string_view text) {
  return source.find(text) != source.npos;
}

// A template has this format if it contains all of the first texts and none of the others.
struct Mark {
  const char* format;
  std::initializer_list<std::string_view> all;
  std::initializer_list<std::string_view> none = {};
};

bool Fits(std::string_view source, const Mark& mark) {
  const auto has = [source](std::string_view text) { return Has(source, text); };
  return std::all_of(mark.all.begin(), mark.all.end(), has) && std::none_of(mark.none.begin(), mark.none.end(), has);
}

// The first one that fits counts. Some templates write texts in parts.
std::string ToolCallFormat(std::string_view source) {
  const Mark marks[] = {
      {"mistral", {"[TOOL_CALLS]"}},
      {"openai", {"<|channel|>", "<|message|>", "to="}},
      {"minimax_m2", {"<minimax:tool_call>"}},
      {"seed_oss", {"<seed:tool_call>"}},
      {"deepseek_v32", {"｜DSML｜", "function_calls"}},
      {"deepseek_v3", {"<｜tool▁call▁begin｜>", "```json"}},
      {"deepseek_v31", {"<｜tool▁call▁begin｜>"}},
      {"kimi_k2", {"<|tool_calls_section_begin|>"}},
      {"lfm2", {"<|tool_list_start|>"}},
      {"lfm2", {"<|tool_call_start|>"}},
      {"apertus", {"<|tools_prefix|>"}},
      {"granite", {"<|tool_call|>", "<|start_of_role|>"}},
      {"gigachat3", {"<|function_call|>", "<|role_sep|>"}},
      {"gemma4", {"<|tool_call>call:"}},
      {"functiongemma", {"<start_function_call>call:"}},
      {"glm47", {"<arg_key>", "</arg_key><arg_value>"}},
      {"glm45", {"<arg_key>", "<arg_value>"}},
      {"qwen3_xml", {"<tool_call>", "<function=", "<parameter="}},
      {"apriel", {"<tool_calls>["}},
      {"minimax", {"<tool_calls>", "</tool_calls>", "arguments"}},
      {"hermes", {"<tool_call>", "</tool_call>", "arguments"}, {"<function="}},
      // Some templates of Llama 3 do not have the python tag.
      {"llama3",
       {"<|start_header_id|>", "Respond in the format {\"name\": function name, \"parameters\":"},
       {"<function="}},
  };
  for (const Mark& mark : marks) {
    if (Fits(source, mark)) return mark.format;
  }
  return "";
}

std::string ReasoningFormat(std::string_view source) {
  const Mark marks[] = {
      {"openai", {"<|channel|>analysis<|message|>"}},
      {"think", {"</think>"}},
      {"mistral", {"[THINK]", "[/THINK]"}},
      {"seed_oss", {"<seed:think>", "</seed:think>"}},
      {"apertus", {"<|inner_prefix|>", "<|inner_suffix|>"}},
      {"gemma4", {"<|channel>", "<channel|>"}},
  };
  for (const Mark& mark : marks) {
    if (Fits(source, mark)) return mark.format;
  }
  return "";
}

}  // namespace

AnswerFormat GuessAnswerFormat(std::string_view chat_template) {
  return {.tool_calls = ToolCallFormat(chat_template), .reasoning = ReasoningFormat(chat_template)};
}

}  // namespace quire
