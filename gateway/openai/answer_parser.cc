// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/answer_parser.h"

#include <utility>

namespace quire {

bool AnswerSyntax::has_channels() const {
  return (has_reasoning && reasoning->is_channel()) || tool_calls.format == ToolCallFormat::kOpenai;
}

bool AnswerSyntax::has_special_tags() const {
  return (has_reasoning && (reasoning->has_special_tags || reasoning->is_channel())) ||
         (tool_calls.format != ToolCallFormat::kNone && SyntaxOf(tool_calls.format).has_special_tags);
}

AnswerParser::AnswerParser(const AnswerSyntax* syntax, std::function<std::string(size_t index)> make_id) {
  if (syntax->has_channels()) {
    static const auto* const no_tools = new ToolCallOptions{.format = ToolCallFormat::kOpenai};
    const bool has_tools = syntax->tool_calls.format == ToolCallFormat::kOpenai;
    channels_.emplace(syntax->has_reasoning, has_tools ? &syntax->tool_calls : no_tools, make_id);
    if (has_tools) return;
  } else if (syntax->has_reasoning) {
    reasoning_.emplace(syntax->begins_in_reasoning, *syntax->reasoning);
  }
  if (syntax->tool_calls.format != ToolCallFormat::kNone) calls_.emplace(&syntax->tool_calls, std::move(make_id));
}

AnswerText AnswerParser::Add(absl::string_view text, bool is_last) {
  AnswerText split;
  if (channels_.has_value()) {
    channels_->Add(text, is_last, &split);
  } else if (reasoning_.has_value()) {
    reasoning_->Add(text, is_last, &split);
  } else {
    split.content = std::string(text);
  }
  if (!calls_.has_value()) return split;
  AnswerText answer;
  answer.reasoning = std::move(split.reasoning);
  calls_->Add(split.content, is_last, &answer);
  return answer;
}

bool AnswerParser::has_whole_calls() const {
  if (calls_.has_value()) return calls_->num_calls() > 0 && calls_->calls_are_whole();
  return channels_.has_value() && channels_->num_calls() > 0 && channels_->calls_are_whole();
}

}  // namespace quire
