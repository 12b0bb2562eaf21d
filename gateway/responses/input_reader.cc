// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/input_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/message_text.h"
#include "gateway/responses/response_tools.h"
#include "gateway/responses/thoughts_token.h"

namespace quire {
namespace {

constexpr char kStored[] =
    "is the name of a stored item, and this server stores none; send the item itself, as the response had it in output";

// Returns the text of a part.
std::string ReadPart(const std::string& type, FieldReader* part) {
  const bool is_refusal = type == "refusal";
  if (!is_refusal && type != "input_text" && type != "output_text") {
    part->Fail("type", absl::StrCat("is ", Dump(type), ", which is not supported: the model reads text only, so it ",
                                    "must be input_text, output_text or refusal"));
  }
  const char* const member = is_refusal ? "refusal" : "text";
  const std::optional<std::string> text = part->String(member);
  if (!text.has_value()) part->Fail(member, "is missing");
  // The last one is for a cache that is told what to keep.
  part->Ignore({"annotations", "logprobs", "prompt_cache_breakpoint"});
  return text.value_or("");
}

// Reads a text, or a list of parts, into the content of the message.
void ReadText(const char* name, const std::string& place, FieldReader* item, v1::ChatMessage* message) {
  const Json* const text = item->Find(name);
  if (text == nullptr) return item->Fail(name, "is missing");
  if (text->is_string()) return AddText(text->get<std::string>(), message);
  if (!text->is_array()) {
    return item->Fail(name, absl::StrCat(Describe(*text), ", it must be a string or a list of parts"));
  }
  ReadTypedList(*text, absl::StrCat(place, ".", name), /*default_type=*/nullptr, item,
                [message](const std::string& type, const std::string&, FieldReader* part) {
                  AddText(ReadPart(type, part), message);
                });
  if (!HasText(*message)) AddText("", message);
}

// Reads a list of {"type": ..., "text": ...} with this type. Returns the texts with line breaks between them.
std::string ReadTexts(const char* name, const char* type, const std::string& place, FieldReader* item) {
  const Json* const list = item->Find(name);
  if (list == nullptr) return "";
  if (!list->is_array()) {
    item->Fail(name, absl::StrCat(Describe(*list), ", it must be a list"));
    return "";
  }
  std::string texts;
  ReadTypedList(*list, absl::StrCat(place, ".", name), /*default_type=*/nullptr, item,
                [&texts, type](const std::string& given, const std::string&, FieldReader* part) {
                  if (given != type) part->Fail("type", absl::StrCat("is ", Dump(given), ", it must be ", type));
                  const std::optional<std::string> text = part->String("text");
                  if (!text.has_value()) part->Fail("text", "is missing");
                  absl::StrAppend(&texts, texts.empty() ? "" : "\n", text.value_or(""));
                });
  return texts;
}

std::string ReadName(const char* name, FieldReader* item) {
  const std::optional<std::string> value = item->String(name);
  if (!value.has_value()) item->Fail(name, "is missing");
  return value.value_or("");
}

bool IsOfSystem(const std::string& role) {
  return role == "system" || role == "developer";
}

}  // namespace

void InputReader::Read(FieldReader* fields) {
  const std::string instructions = fields->String("instructions").value_or("");
  if (!instructions.empty()) Add("system", "instructions")->set_content(instructions);
  ReadInput(fields);
  if (chat_->messages().empty() && !fields->error().has_value()) {
    fields->Fail("input", "has nothing that the model can read; it must have at least one message, call or result");
  }
  for (v1::ChatMessage& message : *chat_->mutable_messages()) {
    // It has thoughts only.
    if (!HasText(message) && message.tool_calls().empty()) message.set_content("");
  }
}

v1::ChatMessage* InputReader::Add(const std::string& role, const std::string& place) {
  names_->messages.push_back(place);
  v1::ChatMessage* const message = chat_->add_messages();
  message->set_role(role);
  return message;
}

v1::ChatMessage* InputReader::Assistant(Kind kind, const std::string& place) {
  // An answer begins with its thoughts, and two texts of one answer have calls between them.
  const Kind before = std::exchange(last_, kind);
  const bool is_new = before == Kind::kOther || (kind == Kind::kText && before == Kind::kText) ||
                      (kind == Kind::kThoughts && before != Kind::kThoughts);
  return is_new ? Add("assistant", place) : &*chat_->mutable_messages()->rbegin();
}

void InputReader::ReadInput(FieldReader* fields) {
  const Json* const input = fields->Find("input");
  if (input == nullptr) return fields->Fail("input", "is missing");
  if (input->is_string()) return Add("user", "input")->set_content(input->get<std::string>());
  if (!input->is_array()) {
    return fields->Fail("input", absl::StrCat(Describe(*input), ", it must be a string or a list of items"));
  }
  if (input->empty()) return fields->Fail("input", "is empty, it must have at least one item");
  ReadTypedList(*input, "input", "message", fields,
                [this](const std::string& type, const std::string& place, FieldReader* item) {
                  ReadItem(type, place, item);
                  item->Ignore({"id", "status"});  // Of a response that is sent back.
                });
}

void InputReader::ReadItem(const std::string& type, const std::string& place, FieldReader* item) {
  if (type == "message" && item->Find("role") == nullptr && item->Find("id") != nullptr) {
    return item->Fail("id", kStored);  // Such an item needs no type.
  }
  if (type == "message") return ReadMessage(place, item);
  is_beginning_ = false;
  if (type == "reasoning") return ReadThoughts(place, item);
  if (type == "function_call" || type == "custom_tool_call") {
    return ReadCall(place, type == "custom_tool_call", item);
  }
  if (type == "function_call_output" || type == "custom_tool_call_output") return ReadCallOutput(place, item);
  if (type == "item_reference") return item->Fail("id", kStored);
  item->Fail("type", absl::StrCat("is ", Dump(type), ", which is not supported: it must be message, reasoning, ",
                                  "function_call, function_call_output, custom_tool_call or custom_tool_call_output"));
}

void InputReader::ReadMessage(const std::string& place, FieldReader* item) {
  const std::string role = item->String("role").value_or("");
  item->Ignore({"phase"});  // Says which texts of an agent are not its last one.
  if (role != "user" && role != "assistant" && !IsOfSystem(role)) {
    return item->Fail("role",
                      item->Find("role") == nullptr
                          ? "is missing"
                          : absl::StrCat("is ", Dump(role), ", it must be user, assistant, system or developer"));
  }
  is_beginning_ = is_beginning_ && IsOfSystem(role);
  if (role == "assistant") return ReadText("content", place, item, Assistant(Kind::kText, place));
  last_ = Kind::kOther;
  if (!is_beginning_ || chat_->messages().empty()) return ReadText("content", place, item, Add(role, place));
  // Many templates take one message of the system only, at the beginning.
  v1::ChatMessage* const message = chat_->mutable_messages(0);
  AddText("\n\n", message);
  ReadText("content", place, item, message);
}

void InputReader::ReadThoughts(const std::string& place, FieldReader* item) {
  std::string thoughts = ReadTexts("content", "reasoning_text", place, item);
  ReadTexts("summary", "summary_text", place, item);  // It is not what the model has written.
  const std::string token = item->String("encrypted_content").value_or("");
  // Only the server that has encrypted thoughts can read them.
  if (thoughts.empty()) thoughts = ThoughtsOfToken(token).value_or("");
  if (thoughts.empty()) return;
  v1::ChatMessage* const message = Assistant(Kind::kThoughts, place);
  const std::string before = message->reasoning_content();
  message->set_reasoning_content(before.empty() ? thoughts : absl::StrCat(before, "\n", thoughts));
}

void InputReader::ReadCall(const std::string& place, bool is_custom, FieldReader* item) {
  v1::ToolCall* const call = Assistant(Kind::kCall, place)->add_tool_calls();
  call->set_id(ReadName("call_id", item));
  call->set_name(NameInSpace(item->String("namespace").value_or(""), ReadName("name", item)));
  call->set_arguments(is_custom ? CustomArguments(ReadName("input", item)) : ReadName("arguments", item));
  item->Ignore({"caller"});
}

void InputReader::ReadCallOutput(const std::string& place, FieldReader* item) {
  last_ = Kind::kOther;
  v1::ChatMessage* const message = Add("tool", place);
  message->set_tool_call_id(ReadName("call_id", item));
  ReadText("output", place, item, message);
  item->Ignore({"caller", "name", "namespace"});
}

}  // namespace quire
