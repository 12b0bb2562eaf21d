// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/forced_calls.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gateway/openai/field_reader.h"

namespace quire {
namespace {

// Returns `text` as a literal of Lark.
std::string Literal(absl::string_view text) {
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}), "\"");
}

// A grammar with "::=" would be read as GBNF. In JSON it can be in a string only, which may have it in this form.
std::string WithoutGbnfSign(absl::string_view json) {
  return absl::StrReplaceAll(json, {{"::=", "\\u003a:="}});
}

constexpr char kRuleEnd[] = "_function_parameters";

// Returns the name of the rule for the parameters of a tool, such as "tools_2_function_parameters". Errors contain it.
std::string ParametersRule(const CallableTool& tool) {
  return absl::StrCat(absl::StrReplaceAll(tool.field, {{"[", "_"}, {"]", ""}}), kRuleEnd);
}

// Returns the body of the rule for one call of any tool.
std::string CallBody(ToolCallFormat format, const std::vector<CallableTool>& tools) {
  const char* const arguments = format == ToolCallFormat::kLlama3 ? "parameters" : "arguments";
  std::string body;
  for (const CallableTool& tool : tools) {
    const std::string begin = absl::StrCat("{\"name\": ", WithoutGbnfSign(Dump(tool.name)), ", \"", arguments, "\": ");
    absl::StrAppend(&body, body.empty() ? "" : " | ", Literal(begin), " ", ParametersRule(tool), " \"}\"");
  }
  return body;
}

std::string CallsBody(ToolCallFormat format, bool is_single) {
  const auto list = [is_single](const std::string& call, const char* separator) {
    return is_single ? call : absl::StrCat(call, " (", Literal(separator), " ", call, ")*");
  };
  switch (format) {
    case ToolCallFormat::kHermes:
      return list(absl::StrCat("(", Literal("<tool_call>\n"), " call ", Literal("\n</tool_call>"), ")"), "\n");
    case ToolCallFormat::kMistral:
      return absl::StrCat("\"[\" ", list("call", ", "), " \"]\"");
    default:
      return list("call", "; ");
  }
}

}  // namespace

std::string ForcedCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools, bool is_single,
                              Thoughts thoughts) {
  std::string grammar = "start: ";
  if (thoughts == Thoughts::kBegun) grammar += "thoughts ";
  if (thoughts == Thoughts::kOptional) grammar += "[\"<think>\" thoughts] ";
  absl::StrAppend(&grammar, CallsBody(format, is_single), "\ncall: ", CallBody(format, tools), "\n");
  for (const CallableTool& tool : tools) {
    absl::StrAppend(&grammar, ParametersRule(tool), ": %json ", WithoutGbnfSign(tool.parameters), "\n");
  }
  // Thoughts that have "</" would need a larger grammar, so they have it at their end only.
  if (thoughts != Thoughts::kNone) grammar += "thoughts: /([^<]|<+[^<\\/])*<\\/think>\\n{0,2}/\n";
  return grammar;
}

// An example is: at byte 9 in line 3, "%": in %json of the rule "tools_2_function_parameters", at #/type: ...
std::optional<std::string> TakeParametersField(std::string* description) {
  const std::string begin = "in %json of the rule \"tools_";
  const std::string end = absl::StrCat(kRuleEnd, "\", ");
  size_t index_begin = description->find(begin);
  if (index_begin == std::string::npos) return std::nullopt;
  index_begin += begin.size();
  const size_t index_end = description->find(end, index_begin);
  if (index_end == std::string::npos) return std::nullopt;
  const std::string index = description->substr(index_begin, index_end - index_begin);
  description->erase(0, index_end + end.size());
  return absl::StrCat("tools[", index, "].function.parameters");
}

}  // namespace quire
