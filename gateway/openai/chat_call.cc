// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/chat_fields.h"
#include "gateway/openai/generate_call.h"
#include "gateway/openai/generate_fields.h"
#include "gateway/openai/neutral_fields.h"

namespace quire {
namespace {

// The names of the functions. REQUIRES: the tools were read without error.
std::vector<std::string> ToolNames(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools) names.push_back(tool["function"]["name"].get<std::string>());
  return names;
}

constexpr const char* kReferringKeywords[] = {"$ref", "allOf", "anyOf", "oneOf"};

// Returns the tools. The parameters of each must be those of an object; otherwise this leaves an error. REQUIRES: the
// tools were read without error.
std::vector<CallableTool> CallableTools(const Json& tools, FieldReader* fields) {
  std::vector<CallableTool> callable;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& function = tools[i]["function"];
    const std::string path = absl::StrCat("tools[", i, "]");
    // A function without parameters takes an empty object.
    Json parameters = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
    if (const auto given = function.find("parameters"); given != function.end() && !given->is_null()) {
      parameters = *given;
      // A schema that refers to others has their types.
      const bool refers = std::any_of(std::begin(kReferringKeywords), std::end(kReferringKeywords),
                                      [&](const char* keyword) { return parameters.contains(keyword); });
      if (!refers) parameters.emplace("type", "object");
      if (const auto type = parameters.find("type"); type != parameters.end() && *type != "object") {
        fields->Fail(path + ".function.parameters.type", absl::StrCat(Describe(*type), ", it must be \"object\""));
      }
    }
    callable.push_back({.name = function["name"].get<std::string>(), .parameters = Dump(parameters), .field = path});
  }
  return callable;
}

// Reads {"type": "function", "function": {"name": ...}}. Leaves the named tool alone in `tools`.
void ReadNamedTool(const Json& choice, FieldReader* fields, std::vector<CallableTool>* tools) {
  FieldReader reader(choice, "tool_choice.");
  const std::optional<std::string> type = reader.String("type");
  const Json* const function = reader.Object("function");
  if (type.value_or("") != "function") {
    const std::string value = type.has_value() ? absl::StrCat("is ", Json(*type).dump()) : "is missing";
    reader.Fail("type", value + ", it must be \"function\"");
  } else if (function == nullptr) {
    reader.Fail("function", "is missing");
  } else {
    FieldReader named(*function, "tool_choice.function.");
    const std::string name = named.String("name").value_or("");
    if (name.empty()) named.Fail("name", "is missing");
    std::erase_if(*tools, [&](const CallableTool& tool) { return tool.name != name; });
    if (tools->empty()) named.Fail("name", absl::StrCat("is ", Json(name).dump(), ", which no function of tools has"));
    named.RefuseOthers();
    if (named.error().has_value()) reader.Fail(*named.error());
  }
  reader.RefuseOthers();
  if (reader.error().has_value()) fields->Fail(*reader.error());
}

// Reads a choice that makes the model call tools.
void ReadForcedTools(const Json& choice, const Json* tools, FieldReader* fields, const v1::GenerateRequest& request,
                     GenerateCall* call) {
  if (!choice.is_object() && choice != "required") {
    return fields->Fail("tool_choice", absl::StrCat(Describe(choice),
                                                    ", it must be none, auto, required or an object with a function"));
  }
  const std::string value = choice.is_object() ? "names a function" : "is \"required\"";
  if (request.chat().tools().empty()) return fields->Fail("tool_choice", value + ", but tools is missing or empty");
  if (request.has_guided()) {
    return fields->Fail("tool_choice", absl::StrCat(value, ", which cannot be combined with ", call->names.guide));
  }
  call->forced_tools = CallableTools(*tools, fields);
  const absl::flat_hash_set<std::string> allowed(call->tools.begin(), call->tools.end());
  std::erase_if(call->forced_tools, [&](const CallableTool& tool) { return !allowed.contains(tool.name); });
  if (choice.is_object() && !fields->error().has_value()) {
    call->names_tool = true;
    ReadNamedTool(choice, fields, &call->forced_tools);
  }
  call->tools.clear();
  for (const CallableTool& tool : call->forced_tools) call->tools.push_back(tool.name);
  call->names.guide = "tools";
}

bool IsAllowedTools(const Json& choice) {
  return choice.is_object() && choice.contains("type") && choice["type"] == "allowed_tools";
}

// Reads {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}. Leaves these tools
// alone in the request. Returns whether one must be called.
bool ReadAllowedTools(const Json& choice, const Json& tools, FieldReader* fields, v1::Chat* chat,
                      std::vector<std::string>* names) {
  FieldReader reader(choice, "tool_choice.");
  reader.Ignore({"type"});
  const Json* const allowed = reader.Object("allowed_tools");
  if (allowed == nullptr) reader.Fail("allowed_tools", "is missing");
  FieldReader inner(allowed == nullptr ? choice : *allowed, "tool_choice.allowed_tools.");
  const std::string mode = inner.String("mode").value_or("");
  if (mode != "auto" && mode != "required") {
    inner.Fail("mode", absl::StrCat("is ", Json(mode).dump(), ", it must be auto or required"));
  }
  const Json* const list = inner.Find("tools");
  if (list == nullptr || !list->is_array() || list->empty()) {
    inner.Fail("tools", "is missing, empty or no list, it must name one of the tools at least");
  }
  absl::flat_hash_map<std::string, const Json*> by_name;
  for (const Json& tool : tools) by_name.emplace(tool["function"]["name"].get<std::string>(), &tool);
  absl::flat_hash_set<const Json*> taken;
  Json kept = Json::array();
  for (size_t i = 0; list != nullptr && list->is_array() && i < list->size(); ++i) {
    const Json& one = (*list)[i];
    const bool has_name = one.is_object() && one.contains("function") && one["function"].is_object() &&
                          one["function"].contains("name") && one["function"]["name"].is_string();
    const auto tool = has_name ? by_name.find(one["function"]["name"].get<std::string>()) : by_name.end();
    if (tool != by_name.end()) {
      if (taken.insert(tool->second).second) kept.push_back(*tool->second);
      continue;
    }
    inner.Fail(absl::StrCat("tools[", i, "].function.name"),
               has_name ? absl::StrCat("is ", one["function"]["name"].dump(), ", which no function of tools has")
                        : "is missing");
  }
  inner.RefuseOthers();
  if (inner.error().has_value()) reader.Fail(*inner.error());
  reader.RefuseOthers();
  if (reader.error().has_value()) fields->Fail(*reader.error());
  if (fields->error().has_value()) return false;
  *names = ToolNames(kept);
  chat->set_tools(Dump(kept));
  return mode == "required";
}

void ReadToolChoice(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call) {
  v1::Chat* const chat = request->mutable_chat();
  const Json* const choice = fields->Find("tool_choice");
  const Json* const tools = fields->Find("tools");
  if (fields->error().has_value()) return;
  if (tools != nullptr) call->tools = ToolNames(*tools);
  call->has_parallel_tool_calls = fields->Bool("parallel_tool_calls").value_or(true);
  if (choice != nullptr && *choice == "none") {
    chat->clear_tools();  // A model that knows no tools calls none.
  } else if (choice != nullptr && IsAllowedTools(*choice)) {
    const bool is_required =
        ReadAllowedTools(*choice, tools == nullptr ? Json::array() : *tools, fields, chat, &call->tools);
    if (is_required) ReadForcedTools("required", tools, fields, *request, call);
  } else if (choice != nullptr && *choice != "auto") {
    ReadForcedTools(*choice, tools, fields, *request, call);
  }
  call->may_call_tools = !chat->tools().empty();
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

std::variant<GenerateCall, ApiError> ReadChatCall(const Json& body) {
  FieldReader fields(body);
  GenerateCall call{.is_chat = true, .names = {.logprobs = "top_logprobs", .prompt = "messages"}};
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
