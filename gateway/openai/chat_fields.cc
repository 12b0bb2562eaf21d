// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/chat_fields.h"

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gateway/openai/tool_list.h"

namespace quire {
namespace {

// Returns the text of a part of a content: {"type": "text", "text": ...}, or {"type": "refusal", "refusal": ...}.
std::optional<std::string> ReadPart(const Json& part, const std::string& name, FieldReader* fields) {
  if (!part.is_object()) {
    fields->Fail(name, absl::StrCat(Describe(part), ", it must be an object"));
    return std::nullopt;
  }
  const auto type = part.find("type");
  if (type == part.end() || (*type != "text" && *type != "refusal")) {
    fields->Fail(name + ".type",
                 type == part.end() ? "is missing" : absl::StrCat(Describe(*type), ", only text is supported"));
    return std::nullopt;
  }
  const auto value = part.find(type->get<std::string>());
  if (value != part.end() && value->is_string()) return value->get<std::string>();
  fields->Fail(absl::StrCat(name, ".", type->get<std::string>()), "is missing or no string");
  return std::nullopt;
}

// A text, or a list of parts, all of which must be texts.
void ReadContent(FieldReader* fields, v1::ChatMessage* message) {
  const Json* const content = fields->Find("content");
  if (content == nullptr) return;
  if (content->is_string()) return message->set_content(content->get<std::string>());
  if (!content->is_array()) {
    return fields->Fail("content", absl::StrCat(Describe(*content), ", it must be a string or a list of parts"));
  }
  if (content->empty()) message->set_content("");
  for (size_t i = 0; i < content->size(); ++i) {
    const std::optional<std::string> text = ReadPart((*content)[i], absl::StrCat("content[", i, "]"), fields);
    if (!text.has_value()) return;
    message->add_content_parts(*text);
  }
}

// Thoughts have several names. Templates see those that the client has used. An empty text contradicts no other.
void ReadReasoning(FieldReader* fields, v1::ChatMessage* message) {
  std::string first;
  std::string thoughts;
  const auto read = [&](const char* name) {
    const std::optional<std::string> text = fields->String(name);
    if (text.value_or("").empty()) return text;
    if (first.empty()) {
      first = name;
      thoughts = *text;
    } else if (*text != thoughts) {
      fields->Fail(name, absl::StrCat("differs from ", first, ", another name of the same field; they must be equal, ",
                                      "or one of them must be left out"));
    }
    return text;
  };
  if (const auto text = read("reasoning_content")) message->set_reasoning_content(*text);
  if (const auto text = read("thinking")) message->set_thinking(*text);
  if (const auto text = read("reasoning")) message->set_reasoning(*text);
}

// Some clients keep the arguments as an object.
void ReadCalledFunction(FieldReader* function, v1::ToolCall* call) {
  call->set_name(function->String("name").value_or(""));
  const Json* const arguments = function->Find("arguments");
  if (arguments != nullptr && arguments->is_object()) {
    call->set_arguments(Dump(*arguments));
  } else {
    call->set_arguments(function->String("arguments").value_or(""));
  }
  function->Ignore({"parsed_arguments"});
  function->RefuseOthers();
}

void ReadToolCall(const Json& json, const std::string& path, FieldReader* parent, v1::ToolCall* call) {
  FieldReader fields(json, path + ".", parent);
  call->set_id(fields.String("id").value_or(""));
  const std::string type = fields.String("type").value_or("function");
  if (type != "function") fields.Fail("type", "is not \"function\", the only one that is supported");
  fields.Ignore({"index"});
  if (const Json* const function = fields.Object("function"); function != nullptr) {
    FieldReader inner(*function, path + ".function.", &fields);
    ReadCalledFunction(&inner, call);
  } else {
    fields.Fail("function", "is missing");
  }
  fields.RefuseOthers();
}

// Before OpenAI had tools, a message could have one call, which had no id, and the answer to it the role "function".
// Most templates know tools only. They may want an id of nine letters and digits.
constexpr char kOldCallId[] = "function0";

void ReadOldCall(const std::string& path, FieldReader* fields, v1::ChatMessage* message) {
  const Json* const function = fields->Object("function_call");
  if (function == nullptr) return;
  if (message->tool_calls_size() > 0) return fields->Fail("function_call", "cannot be combined with tool_calls");
  v1::ToolCall* const call = message->add_tool_calls();
  call->set_id(kOldCallId);
  FieldReader inner(*function, path + ".function_call.", fields);
  ReadCalledFunction(&inner, call);
}

void AnswerOldCall(v1::ChatMessage* message) {
  if (message->role() != "function") return;
  message->set_role("tool");
  message->set_tool_call_id(kOldCallId);
}

void ReadMessage(const Json& json, const std::string& path, FieldReader* parent, v1::ChatMessage* message) {
  FieldReader fields(json, path + ".", parent);
  if (const auto role = fields.String("role")) {
    message->set_role(*role);
  } else {
    fields.Fail("role", "is missing");
  }
  ReadContent(&fields, message);
  if (const auto name = fields.String("name")) message->set_name(*name);
  if (const auto id = fields.String("tool_call_id")) message->set_tool_call_id(*id);
  ReadReasoning(&fields, message);
  if (const Json* const calls = fields.Find("tool_calls"); calls != nullptr) {
    if (!calls->is_array()) fields.Fail("tool_calls", absl::StrCat(Describe(*calls), ", it must be a list"));
    for (size_t i = 0; calls->is_array() && i < calls->size(); ++i) {
      const std::string call_path = absl::StrCat(path, ".tool_calls[", i, "]");
      if (!(*calls)[i].is_object()) {
        fields.Fail(absl::StrCat("tool_calls[", i, "]"), "is no object");
        break;
      }
      ReadToolCall((*calls)[i], call_path, &fields, message->add_tool_calls());
    }
  }
  ReadOldCall(path, &fields, message);
  // Clients send these fields back from an answer that they have received. OpenAI's adds those with "parsed". The audio
  // of our answers is always null.
  fields.Ignore({"refusal", "annotations", "parsed"});
  fields.RefuseOthers();
}

void ReadMessages(FieldReader* fields, v1::Chat* chat) {
  const Json* const messages = fields->Find("messages");
  if (messages == nullptr) return fields->Fail("messages", "is missing");
  if (!messages->is_array()) return fields->Fail("messages", absl::StrCat(Describe(*messages), ", it must be a list"));
  bool has_old_call = false;
  for (size_t i = 0; i < messages->size(); ++i) {
    const std::string path = absl::StrCat("messages[", i, "]");
    if (!(*messages)[i].is_object()) {
      return fields->Fail(path, absl::StrCat(Describe((*messages)[i]), ", it must be an object"));
    }
    ReadMessage((*messages)[i], path, fields, chat->add_messages());
    has_old_call = has_old_call || (*messages)[i].contains("function_call");
    if (has_old_call) AnswerOldCall(&*chat->mutable_messages()->rbegin());
  }
}

// Checks the description of a function, except for the keywords of its parameters. Returns its name.
std::string ReadFunction(const Json& function, const std::string& path, FieldReader* parent) {
  FieldReader fields(function, path + ".", parent);
  const std::string name = fields.String("name").value_or("");
  if (name.empty()) fields.Fail("name", "is missing or empty");
  fields.String("description");
  fields.Object("parameters");
  fields.Bool("strict");
  fields.Ignore({"return"});  // Transformers describes with it what a function returns.
  fields.AcceptOnly("defer_loading", "[false]", "the chat template shows all tools");
  fields.RefuseOthers();
  return name;
}

std::string ReadTool(const Json& tool, const std::string& path, FieldReader* parent) {
  FieldReader fields(tool, path + ".", parent);
  const std::string type = fields.String("type").value_or("function");
  if (type != "function") fields.Fail("type", absl::StrCat("is ", Json(type).dump(), ", only functions are supported"));
  std::string name;
  if (const Json* const function = fields.Object("function"); function != nullptr) {
    name = ReadFunction(*function, path + ".function", &fields);
  } else {
    fields.Fail("function", tool.contains("name") ? "is missing; the name and what follows it belong into an object "
                                                    "\"function\", unlike in the Responses interface"
                                                  : "is missing");
  }
  fields.AcceptOnly("defer_loading", "[false]", "the chat template shows all tools");
  fields.RefuseOthers();
  return name;
}

void ReadTools(FieldReader* fields, v1::Chat* chat) {
  const Json* const tools = fields->Find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return fields->Fail("tools", absl::StrCat(Describe(*tools), ", it must be a list"));
  ReadToolList(*tools, "tools", "function.name", fields,
               [fields](const Json& tool, const std::string& place) { return ReadTool(tool, place, fields); });
  if (!tools->empty()) chat->set_tools(Dump(*tools));
}

}  // namespace

void ReadTemplateVariables(const std::vector<TemplateVariable>& named, FieldReader* fields, v1::Chat* chat) {
  const Json* const given = fields->Object("chat_template_kwargs");
  Json variables = given == nullptr ? Json::object() : *given;
  for (const auto& [name, field, value] : named) {
    if (value.has_value() && *variables.emplace(name, *value).first != *value) {
      return fields->Fail(field,
                          absl::StrCat("is ", Dump(*value), ", but chat_template_kwargs.", name, " is another value"));
    }
  }
  if (given != nullptr || !variables.empty()) chat->set_template_kwargs(Dump(variables));
}

void ReadChatFields(FieldReader* fields, v1::Chat* chat) {
  ReadMessages(fields, chat);
  ReadTools(fields, chat);
  if (const auto value = fields->Bool("add_generation_prompt")) chat->set_add_generation_prompt(*value);
  if (const auto value = fields->Bool("continue_final_message")) chat->set_continue_final_message(*value);
  ReadTemplateVariables({{"reasoning_effort", "reasoning_effort", fields->String("reasoning_effort")},
                         {"verbosity", "verbosity", fields->String("verbosity")}},
                        fields, chat);
  fields->Refuse("chat_template", "the template of the model's checkpoint is always used");
}

}  // namespace quire
