// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/chat/answer_format.h"

namespace quire {
namespace {

bool Has(std::string_view source, std::string_view text) {
  return source.find(text) != source.npos;
}

std::string ToolCallFormat(std::string_view source) {
  const auto has = [source](std::string_view text) { return Has(source, text); };
  if (has("[TOOL_CALLS]")) return "mistral";
  // Other models write the calls between these tags as XML.
  if (has("<function=") || has("<arg_key>")) return "";
  if (has("<tool_call>") && has("</tool_call>") && has("arguments")) return "hermes";
  // Some templates of Llama 3 do not have the python tag.
  if (has("<|start_header_id|>") && has("Respond in the format {\"name\": function name, \"parameters\":")) {
    return "llama3";
  }
  return "";
}

}  // namespace

AnswerFormat GuessAnswerFormat(std::string_view chat_template) {
  return {.tool_calls = ToolCallFormat(chat_template), .reasoning = Has(chat_template, "</think>") ? "think" : ""};
}

}  // namespace quire
