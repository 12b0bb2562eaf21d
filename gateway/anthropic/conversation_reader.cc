// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/conversation_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/message_text.h"

namespace quire {
namespace {

// Claude Code begins its system prompt with a line that differs in every request. It says nothing to a model, and
// nothing behind it would be found in the prefix cache.
std::string WithoutBillingLine(const std::string& text) {
  if (!absl::StartsWith(text, "x-anthropic-billing-header:")) return text;
  const size_t end = text.find('\n');
  return end == text.npos ? "" : text.substr(end + 1);
}

// Returns the text of a block of the type text.
std::string ReadText(FieldReader* block) {
  const std::optional<std::string> text = block->String("text");
  if (!text.has_value()) block->Fail("text", "is missing");
  block->AcceptOnly("citations", "[[]]", "the model cites nothing");
  return text.value_or("");
}

void RefuseType(const std::string& type, const char* supported, FieldReader* block) {
  block->Fail("type", absl::StrCat("is ", Dump(type), ", which is not supported here: it must be ", supported));
}

}  // namespace

template <typename BlockReader, typename PlaceNow>
void ConversationReader::ReadBlocks(const Json& list, const std::string& path, FieldReader* parent, BlockReader read,
                                    PlaceNow place_now) {
  ReadTypedList(list, path, /*default_type=*/nullptr, parent,
                [&](const std::string& type, const std::string& place, FieldReader* block) {
                  const std::optional<uint32_t> ttl_seconds = ReadCacheControl(place + ".", block);
                  if (ttl_seconds.has_value() && absl::EndsWith(type, "thinking")) {
                    block->Fail("cache_control", absl::StrCat("cannot be set for a block of the type ", type));
                  }
                  if (block->error().has_value()) return;
                  read(type, place, block);
                  if (!ttl_seconds.has_value() || block->error().has_value()) return;
                  breakpoints_.push_back({place + ".cache_control", place_now()});
                  breakpoints_.back().pin.set_ttl_seconds(*ttl_seconds);
                });
}

template <typename BlockReader>
void ConversationReader::ReadBlocks(const Json& list, const std::string& path, FieldReader* parent, BlockReader read) {
  ReadBlocks(list, path, parent, read, [this] { return PinBehind(chat_->messages_size(), *last()); });
}

void ConversationReader::Read(FieldReader* fields) {
  ReadSystem(fields);
  ReadMessages(fields);
  if (chat_->messages().empty()) return;
  const v1::ChatMessage& end = *last();
  const bool has_begun = !end.content().empty() || !end.content_parts().empty() || !end.reasoning_content().empty();
  if (end.role() == "assistant" && end.tool_calls().empty() && has_begun) chat_->set_continue_final_message(true);
}

v1::ChatMessage* ConversationReader::Add(const std::string& role, const std::string& path) {
  names_->messages.push_back(path);
  v1::ChatMessage* const message = chat_->add_messages();
  message->set_role(role);
  return message;
}

void ConversationReader::ReadSystem(FieldReader* fields) {
  const Json* const system = fields->Find("system");
  if (system == nullptr) return;
  v1::ChatMessage message;
  const auto add = [&message](const std::string& text) {
    std::string kept = WithoutBillingLine(text);
    if (!kept.empty()) AddText(std::move(kept), &message);
  };
  if (system->is_string()) {
    add(system->get<std::string>());
  } else if (system->is_array()) {
    ReadBlocks(
        *system, "system", fields,
        [&add](const std::string& type, const std::string&, FieldReader* block) {
          if (type != "text") return RefuseType(type, "text", block);
          add(ReadText(block));
        },
        [&message] { return PinBehind(HasText(message) ? 1 : 0, message); });
  } else {
    fields->Fail("system", absl::StrCat(Describe(*system), ", it must be a string or a list of blocks"));
  }
  if (!HasText(message)) return;
  message.set_role("system");
  *Add("system", "system") = std::move(message);
}

void ConversationReader::ReadMessages(FieldReader* fields) {
  const Json* const messages = fields->Find("messages");
  if (messages == nullptr) return fields->Fail("messages", "is missing");
  if (!messages->is_array()) return fields->Fail("messages", absl::StrCat(Describe(*messages), ", it must be a list"));
  if (messages->empty()) return fields->Fail("messages", "is empty, it must have at least one message");
  for (size_t i = 0; i < messages->size() && !fields->error().has_value(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!(*messages)[i].is_object()) {
      return fields->Fail(path, absl::StrCat(Describe((*messages)[i]), ", it must be an object"));
    }
    ReadMessage((*messages)[i], path, fields);
  }
}

void ConversationReader::ReadMessage(const Json& json, const std::string& path, FieldReader* parent) {
  FieldReader fields(json, path + ".", parent);
  const std::string role = fields.String("role").value_or("");
  if (role != "user" && role != "assistant" && role != "system") {
    fields.Fail("role", fields.Find("role") == nullptr
                            ? "is missing"
                            : absl::StrCat("is ", Dump(role), ", it must be user, assistant or system"));
  }
  const auto text_of = [is_system = role == "system"](const std::string& text) {
    return is_system ? WithoutBillingLine(text) : text;
  };
  const Json* const content = fields.Find("content");
  if (content == nullptr) {
    fields.Fail("content", "is missing");
  } else if (content->is_string()) {
    Add(role, path)->set_content(text_of(content->get<std::string>()));
  } else if (content->is_array()) {
    if (role == "assistant" || content->empty()) Add(role, path);
    bool extends = role == "assistant";  // Whether a text belongs to the last message of the chat.
    ReadBlocks(*content, path + ".content", &fields,
               [&](const std::string& type, const std::string& place, FieldReader* block) {
                 if (type == "text") {
                   if (!std::exchange(extends, true)) Add(role, place);
                   return AddText(text_of(ReadText(block)), last());
                 }
                 ReadBlock(type, place, role, block);
                 extends = role == "assistant";
               });
    const bool has_calls = !chat_->messages().empty() && !last()->tool_calls().empty();
    if ((role == "assistant" && !has_calls && !HasText(*last())) || content->empty()) last()->set_content("");
  } else {
    fields.Fail("content", absl::StrCat(Describe(*content), ", it must be a string or a list of blocks"));
  }
  fields.Ignore({"id", "type", "model", "stop_reason", "stop_sequence", "usage"});  // Of an answer that is sent back.
  fields.RefuseOthers();
}

void ConversationReader::ReadBlock(const std::string& type, const std::string& path, const std::string& role,
                                   FieldReader* block) {
  if (role == "user" && type == "tool_result") return ReadToolResult(path, block);
  if (role == "assistant" && type == "thinking") return ReadThinking(block);
  if (role == "assistant" && type == "tool_use") return ReadToolUse(block);
  // Only the server that has encrypted these thoughts can read them.
  if (role == "assistant" && type == "redacted_thinking") return block->Ignore({"data"});
  const char* const supported = role == "user"        ? "text or tool_result"
                                : role == "assistant" ? "text, thinking, redacted_thinking or tool_use"
                                                      : "text";
  RefuseType(type, supported, block);
}

void ConversationReader::ReadThinking(FieldReader* block) {
  const std::optional<std::string> thoughts = block->String("thinking");
  if (!thoughts.has_value()) block->Fail("thinking", "is missing");
  block->Ignore({"signature"});
  if (thoughts.value_or("").empty()) return;
  v1::ChatMessage* const message = last();
  const std::string before = message->reasoning_content();
  message->set_reasoning_content(before.empty() ? *thoughts : absl::StrCat(before, "\n", *thoughts));
}

void ConversationReader::ReadToolUse(FieldReader* block) {
  v1::ToolCall* const call = last()->add_tool_calls();
  const std::optional<std::string> id = block->String("id");
  const std::optional<std::string> name = block->String("name");
  const Json* const input = block->Object("input");
  if (!id.has_value()) block->Fail("id", "is missing");
  if (!name.has_value()) block->Fail("name", "is missing");
  call->set_id(id.value_or(""));
  call->set_name(name.value_or(""));
  call->set_arguments(input == nullptr ? "{}" : Dump(*input));
  block->Ignore({"caller"});
}

void ConversationReader::ReadToolResult(const std::string& path, FieldReader* block) {
  v1::ChatMessage* const message = Add("tool", path);
  if (const auto id = block->String("tool_use_id")) {
    message->set_tool_call_id(*id);
  } else {
    block->Fail("tool_use_id", "is missing");
  }
  const Json* const content = block->Find("content");
  if (content != nullptr && content->is_string()) {
    AddText(content->get<std::string>(), message);
  } else if (content != nullptr && content->is_array()) {
    ReadBlocks(*content, path + ".content", block, [&](const std::string& type, const std::string&, FieldReader* part) {
      if (type == "tool_reference") return ReadToolReference(part, message);
      if (type != "text") return RefuseType(type, "text or tool_reference", part);
      AddText(ReadText(part), message);
    });
  } else if (content != nullptr) {
    block->Fail("content", absl::StrCat(Describe(*content), ", it must be a string or a list of blocks"));
  }
  // Chat templates have no place for it, so the text says it.
  const bool is_error = block->Bool("is_error").value_or(false);
  if (!HasText(*message)) message->set_content(is_error ? "error" : "");
}

void ConversationReader::ReadToolReference(FieldReader* block, v1::ChatMessage* message) {
  const std::string name = block->String("tool_name").value_or("");
  if (name.empty()) return block->Fail("tool_name", "is missing or empty");
  referenced_tools_.insert(name);
  AddText(absl::StrCat("The tool ", name, " can be called now.\n"), message);
}

}  // namespace quire
