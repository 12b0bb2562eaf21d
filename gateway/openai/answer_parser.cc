// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/answer_parser.h"

#include <utility>

namespace quire {

AnswerParser::AnswerParser(const AnswerSyntax* syntax, std::function<std::string(size_t index)> make_id) {
  if (syntax->has_reasoning) reasoning_.emplace(syntax->begins_in_reasoning);
  if (syntax->tool_calls.format != ToolCallFormat::kNone) calls_.emplace(&syntax->tool_calls, std::move(make_id));
}

AnswerText AnswerParser::Add(absl::string_view text, bool is_last) {
  AnswerText split;
  if (reasoning_.has_value()) {
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

}  // namespace quire
