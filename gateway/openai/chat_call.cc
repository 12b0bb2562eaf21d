// SPDX-License-Identifier: Apache-2.0

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gateway/openai/chat_fields.h"
#include "gateway/openai/forced_tools.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/generate_fields.h"
#include "gateway/openai/neutral_fields.h"
#include "gateway/openai/tool_list.h"

namespace quire {
namespace {

// Returns the name in {"type": "function", "function": {"name": ...}}, or leaves an error. A definition may
// repeat the other fields of the tool, and leave the type out.
std::optional<std::string> ReadToolName(const Json& tool, const std::string& path, bool is_definition,
                                        FieldReader* parent) {
  FieldReader reader(tool, path + ".", parent);
  std::optional<std::string> type = reader.String("type");
  if (is_definition && !type.has_value()) type = "function";
  const Json* const function = reader.Object("function");
  std::optional<std::string> name;
  if (type.value_or("") != "function") {
    const std::string value = type.has_value() ? absl::StrCat("is ", Json(*type).dump()) : "is missing";
    reader.Fail("type", value + ", it must be \"function\"");
  } else if (function == nullptr) {
    reader.Fail("function", "is missing");
  } else {
    FieldReader named(*function, path + ".function.", &reader);
    name = named.String("name");
    if (name.value_or("").empty()) named.Fail("name", "is missing");
    if (is_definition) named.Ignore({"description", "parameters", "strict"});
    named.RefuseOthers();
  }
  reader.RefuseOthers();
  return reader.error().has_value() ? std::nullopt : name;
}

// Reads a choice that makes the model call tools.
void ReadForcedTools(const Json& choice, const Json* tools, FieldReader* fields, const v1::GenerateRequest& request,
                     GenerateCall* call) {
  if (!choice.is_object() && choice != "required") {
    return fields->Fail("tool_choice", absl::StrCat(Describe(choice),
                                                    ", it must be none, auto, required or an object with a function"));
  }
  ForcedChoice forced{.value = "is \"required\""};
  if (choice.is_object()) {
    forced = {.value = "names a function", .name = "", .name_field = "tool_choice.function.name"};
    if (!request.chat().tools().empty())
      forced.name = ReadToolName(choice, "tool_choice", /*is_definition=*/false, fields).value_or("");
  }
  if (!fields->error().has_value()) ForceTools(forced, tools, fields, request, call);
}

bool IsAllowedTools(const Json& choice) {
  return choice.is_object() && choice.contains("type") && choice["type"] == "allowed_tools";
}

// Reads {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}. Leaves these tools
// alone in the request. Returns whether one must be called.
bool ReadAllowedTools(const Json& choice, const Json& tools, FieldReader* fields, v1::Chat* chat, GenerateCall* call) {
  FieldReader reader(choice, "tool_choice.", fields);
  reader.Ignore({"type"});
  const Json* const allowed = reader.Object("allowed_tools");
  if (allowed == nullptr) reader.Fail("allowed_tools", "is missing");
  const std::string path = "tool_choice.allowed_tools.";
  FieldReader inner(allowed == nullptr ? choice : *allowed, path, &reader);
  const AllowedTools list = ReadAllowedList(&inner);
  std::vector<ListedTool> listed;
  for (size_t i = 0; list.tools != nullptr && i < list.tools->size(); ++i) {
    const Json& tool = (*list.tools)[i];
    const std::string place = absl::StrCat(path, "tools[", i, "]");
    if (!tool.is_object()) {
      inner.Fail(FieldError(place, absl::StrCat(Describe(tool), ", it must be an object")));
      break;
    }
    const std::optional<std::string> name = ReadToolName(tool, place, /*is_definition=*/true, &inner);
    listed.push_back({.name = name.value_or(""), .field = place + ".function.name"});
  }
  inner.RefuseOthers();
  reader.RefuseOthers();
  if (!fields->error().has_value()) KeepListedTools(listed, tools, fields, chat, call);
  return list.is_required && !fields->error().has_value();
}

void ReadToolChoice(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  v1::Chat* const chat = request->mutable_chat();
  const Json* const choice = fields->Find("tool_choice");
  const Json* const tools = fields->Find("tools");
  if (fields->error().has_value()) return;
  if (tools != nullptr) {
    call->tools = ToolNames(*tools);
    call->parameters = ParametersOfTools(*tools);
  }
  call->has_parallel_tool_calls = fields->Bool("parallel_tool_calls").value_or(true);
  if (choice != nullptr && *choice == "none") {
    chat->clear_tools();  // A model that knows no tools calls none.
  } else if (choice != nullptr && IsAllowedTools(*choice)) {
    const bool is_required = ReadAllowedTools(*choice, tools == nullptr ? Json::array() : *tools, fields, chat, call);
    if (is_required) ReadForcedTools("required", tools, fields, *request, call);
  } else if (choice != nullptr && *choice != "auto") {
    ReadForcedTools(*choice, tools, fields, *request, call);
  }
  call->may_call_tools = !chat->tools().empty();
  if (call->may_call_tools && call->forced_tools.empty() && !fields->error().has_value()) {
    RestrictTools(*tools, {}, fields, *request, call);
  }
}

void ReadMaxTokens(FieldReader* fields, v1::StoppingParams* stopping, GenerateCall* call) {
  const std::optional<uint32_t> max_tokens = fields->Count("max_tokens", 1);
  const std::optional<uint32_t> max_completion_tokens = fields->Count("max_completion_tokens", 1);
  if (max_completion_tokens.has_value()) call->names.max_tokens = "max_completion_tokens";
  if (max_tokens.has_value() && max_completion_tokens.has_value() && *max_tokens != *max_completion_tokens) {
    fields->Fail("max_completion_tokens",
                 absl::StrCat("is ", *max_completion_tokens, ", but max_tokens, its older name, is ", *max_tokens,
                              "; they must be equal, or one of them must be left out"));
  }
  call->has_max_tokens = max_tokens.has_value() || max_completion_tokens.has_value();
  if (call->has_max_tokens) {
    stopping->set_max_tokens(max_completion_tokens.has_value() ? *max_completion_tokens : *max_tokens);
  } else {
    call->names.max_tokens.reset();
  }
}

void ReadLogprobs(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  const bool has_logprobs = fields->Bool("logprobs").value_or(false);
  const std::optional<uint32_t> top = fields->Count("top_logprobs", 0, kMaxAlternatives);
  if (top.value_or(0) > 0 && !has_logprobs) return fields->Fail("top_logprobs", "needs logprobs to be true");
  if (!has_logprobs) return;
  call->logprobs = top.value_or(0);
  request->set_logprobs(*call->logprobs);
}

}  // namespace

std::variant<GenerateCall, ApiError> ReadChatCall(const Json& body, UnknownFields unknown) {
  GenerateCall call{.is_chat = true, .names = {.logprobs = "top_logprobs", .prompt = "messages"}};
  FieldReader fields(body, "", unknown == UnknownFields::kIgnore ? &call.ignored : nullptr);
  v1::GenerateRequest request;
  ReadGenerateFields(&fields, &request, &call);
  ReadMaxTokens(&fields, request.mutable_stopping(), &call);
  ReadLogprobs(&fields, &request, &call);
  ReadChatFields(&fields, request.mutable_chat());
  ReadToolChoice(&fields, &request, &call);
  ReadNeutralFields(/*is_chat=*/true, &fields);
  fields.RefuseOthers();
  if (fields.error().has_value()) return *fields.error();
  call.requests.push_back(std::move(request));
  return call;
}

}  // namespace quire
