// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/answer_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_text.h"

namespace quire {
namespace {

// vLLM has replaced the first name by the second, and clients read one of them.
constexpr const char* kThoughtNames[] = {"reasoning_content", "reasoning"};

void AppendCall(const ToolCallDelta& call, std::string* out) {
  absl::StrAppend(out, "{\"index\":", call.index);
  if (!call.id.empty()) {
    *out += ",\"id\":";
    AppendJsonString(call.id, out);
    *out += ",\"type\":\"function\"";
  }
  *out += ",\"function\":{";
  if (!call.id.empty()) {
    *out += "\"name\":";
    AppendJsonString(call.name, out);
    *out += ',';
  }
  *out += "\"arguments\":";
  AppendJsonString(call.arguments, out);
  *out += "}}";
}

}  // namespace

void AppendDelta(const AnswerText& text, std::string* out) {
  *out += '{';
  const auto begin_member = [out](const char* name) {
    absl::StrAppend(out, out->back() == '{' ? "" : ",", "\"", name, "\":");
  };
  for (const char* name : kThoughtNames) {
    if (text.reasoning.empty()) continue;
    begin_member(name);
    AppendJsonString(text.reasoning, out);
  }
  if (!text.content.empty()) {
    begin_member("content");
    AppendJsonString(text.content, out);
  }
  if (!text.calls.empty()) {
    begin_member("tool_calls");
    *out += '[';
    for (const ToolCallDelta& call : text.calls) {
      if (out->back() != '[') *out += ',';
      AppendCall(call, out);
    }
    *out += ']';
  }
  *out += '}';
}

void DropContent(AnswerText* text) {
  text->content.clear();
  for (ToolCallDelta& call : text->calls) call.content_begin = 0;
}

void Append(const AnswerText& more, AnswerText* text) {
  text->reasoning += more.reasoning;
  text->content += more.content;
  for (const ToolCallDelta& call : more.calls) {
    if (!text->calls.empty() && text->calls.back().index == call.index) {
      text->calls.back().arguments += call.arguments;
    } else {
      text->calls.push_back(call);
    }
  }
}

void AppendMessage(const AnswerText& text, std::string* out) {
  *out += "{\"role\":\"assistant\",\"content\":";
  if (text.content.empty() && !text.calls.empty()) {
    *out += "null";
  } else {
    AppendJsonString(text.content, out);
  }
  *out += ",\"refusal\":null";
  for (const char* name : kThoughtNames) {
    if (text.reasoning.empty()) continue;
    absl::StrAppend(out, ",\"", name, "\":");
    AppendJsonString(text.reasoning, out);
  }
  const char* separator = ",\"tool_calls\":[";
  for (const ToolCallDelta& call : text.calls) {
    *out += std::exchange(separator, ",");
    *out += "{\"id\":";
    AppendJsonString(call.id, out);
    *out += ",\"type\":\"function\",\"function\":{\"name\":";
    AppendJsonString(call.name, out);
    *out += ",\"arguments\":";
    AppendJsonString(call.arguments, out);
    *out += "}}";
  }
  *out += text.calls.empty() ? "}" : "]}";
}

}  // namespace quire
