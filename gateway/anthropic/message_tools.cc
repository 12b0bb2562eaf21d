// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_tools.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/openai/forced_tools.h"
#include "gateway/openai/tool_list.h"

namespace quire {
namespace {

struct MessageTool {
  Json converted;  // In OpenAI's form, which chat templates read: {"type": "function", "function": {...}}.
  bool is_deferred = false;
  std::optional<uint32_t> ttl_seconds = std::nullopt;  // Of its breakpoint.
};

MessageTool ReadTool(const Json& tool, const std::string& path, FieldReader* parent) {
  FieldReader fields(tool, path + ".", parent);
  const std::string type = fields.String("type").value_or("custom");
  if (type != "custom") {
    fields.Fail("type", absl::StrCat("is ", Dump(type), ", which is not supported: only tools of the type custom are, ",
                                     "which the client runs itself"));
  }
  const std::string name = fields.String("name").value_or("");
  if (name.empty()) fields.Fail("name", "is missing or empty");
  Json function = {{"name", name}};
  if (const auto description = fields.String("description")) function["description"] = *description;
  const Json* const schema = fields.Object("input_schema");
  if (schema == nullptr) {
    fields.Fail("input_schema", "is missing");
  } else {
    function["parameters"] = *schema;
  }
  const std::optional<uint32_t> ttl_seconds = ReadCacheControl(path + ".", &fields);
  const bool is_deferred = fields.Bool("defer_loading").value_or(false);
  fields.Ignore({"strict", "eager_input_streaming", "input_examples", "allowed_callers"});
  fields.RefuseOthers();
  return {.converted = {{"type", "function"}, {"function", std::move(function)}},
          .is_deferred = is_deferred,
          .ttl_seconds = ttl_seconds};
}

// Returns the tools that the model shall know, in OpenAI's form.
Json ReadTools(const Json& tools, const std::set<std::string>& referenced, FieldReader* fields,
               CacheBreakpoints* breakpoints) {
  Json converted = Json::array();
  ReadToolList(tools, "tools", "name", fields, [&](const Json& json, const std::string& place) {
    MessageTool tool = ReadTool(json, place, fields);
    if (tool.ttl_seconds.has_value()) {
      breakpoints->push_back({place + ".cache_control", {}});
      breakpoints->back().pin.set_ttl_seconds(*tool.ttl_seconds);
    }
    std::string name = tool.converted["function"]["name"].get<std::string>();
    if (!tool.is_deferred || referenced.contains(name)) converted.push_back(std::move(tool.converted));
    return name;
  });
  return converted;
}

void ReadToolChoice(const Json& choice, const Json& tools, FieldReader* fields, v1::GenerateRequest* request,
                    GenerateCall* call) {
  FieldReader reader(choice, "tool_choice.", fields);
  const std::string type = reader.String("type").value_or("");
  call->has_parallel_tool_calls = !reader.Bool("disable_parallel_tool_use").value_or(false);
  std::optional<std::string> name;
  if (type == "tool") {
    name = reader.String("name").value_or("");
    if (name->empty()) reader.Fail("name", "is missing");
  } else if (type != "auto" && type != "any" && type != "none") {
    reader.Fail("type", reader.Find("type") == nullptr
                            ? "is missing"
                            : absl::StrCat("is ", Dump(type), ", it must be auto, any, tool or none"));
  }
  reader.RefuseOthers();
  if (reader.error().has_value()) return;
  if (type == "none") request->mutable_chat()->clear_tools();  // A model that knows no tools calls none.
  if (type == "any" || type == "tool") {
    ForceTools({.value = absl::StrCat("has the type ", type), .name = name, .name_field = "tool_choice.name"}, &tools,
               fields, *request, call);
  }
}

}  // namespace

CacheBreakpoints ReadMessageTools(const std::set<std::string>& referenced, FieldReader* fields,
                                  v1::GenerateRequest* request, GenerateCall* call) {
  CacheBreakpoints breakpoints;
  call->names.tool_parameters = "input_schema";
  const Json* const given = fields->Find("tools");
  const Json* const choice = fields->Object("tool_choice");
  if (given != nullptr && !given->is_array()) {
    fields->Fail("tools", absl::StrCat(Describe(*given), ", it must be a list"));
    return {};
  }
  const Json tools = given == nullptr ? Json::array() : ReadTools(*given, referenced, fields, &breakpoints);
  if (fields->error().has_value()) return {};
  call->tools = ToolNames(tools);
  call->parameters = ParametersOfTools(tools);
  if (!tools.empty()) request->mutable_chat()->set_tools(Dump(tools));
  if (choice != nullptr) ReadToolChoice(*choice, tools, fields, request, call);
  call->may_call_tools = !request->chat().tools().empty();
  return breakpoints;
}

}  // namespace quire
