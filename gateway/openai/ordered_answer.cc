// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/ordered_answer.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/openai/call_id.h"

namespace quire {

OrderedAnswer::OrderedAnswer(AnswerHead head, std::string call_prefix)
    : head_(std::move(head)), call_prefix_(std::move(call_prefix)) {}

void OrderedAnswer::SetSyntax(AnswerSyntax syntax) {
  syntax_ = std::move(syntax);
  if (syntax_.is_plain()) return;
  parser_.emplace(&syntax_, [this](size_t call) {
    return CallId(call_prefix_, absl::StrCat(head_.id, "/", call), syntax_.tool_calls.format);
  });
}

void OrderedAnswer::SetBeginsInReasoning(bool begins_in_reasoning) {
  if (!syntax_.has_reasoning) return;
  syntax_.begins_in_reasoning = begins_in_reasoning;
  SetSyntax(std::move(syntax_));
}

void OrderedAnswer::AddText(const v1::GenerateResponse& response, std::string* out) {
  const bool is_last = response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  const AnswerText text =
      parser_.has_value() ? parser_->Add(response.text_delta(), is_last) : AnswerText{.content = response.text_delta()};
  if (!text.reasoning.empty()) AddThoughts(text.reasoning, out);
  const absl::string_view content = text.content;
  size_t num_taken = 0;
  const auto take_content = [&](size_t end) {
    if (end > num_taken) AddContent(content.substr(num_taken, end - num_taken), out);
    num_taken = end;
  };
  for (const ToolCallDelta& call : text.calls) {
    take_content(call.content_begin);
    if (!call.id.empty()) BeginCall(call, out);
    if (!call.arguments.empty()) AddArguments(call.arguments, out);
  }
  take_content(content.size());
}

}  // namespace quire
