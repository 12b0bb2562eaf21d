// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_tools.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/forced_tools.h"
#include "gateway/openai/parameter_types.h"
#include "gateway/openai/tool_list.h"

namespace quire {
namespace {

constexpr char kInput[] = "input";  // The parameter of a function that stands for a custom tool.

// Reads the list of tools, and the lists of its namespaces.
class ToolReader {
 public:
  explicit ToolReader(ResponseSettings* settings) : settings_(settings) {}

  void Read(const Json& list, FieldReader* fields);

  // The tools in the form that chat templates read: {"type": "function", "function": {...}}.
  Json tools = Json::array();
  std::vector<std::string> fields_of_tools = {};  // The field of each.

 private:
  // Returns the name of the tool, or of the namespace. `space` is the namespace that has the tool.
  std::string ReadTool(const Json& tool, const std::string& place, const std::string& space, FieldReader* parent);
  void ReadFunction(const std::string& place, ResponseTool names, FieldReader* tool);
  void ReadCustom(const std::string& place, ResponseTool names, FieldReader* tool);
  void ReadSpace(const std::string& place, const std::string& space, FieldReader* tool);
  void Add(const std::string& place, ResponseTool names, Json function, FieldReader* tool);

  ResponseSettings* const settings_;
  absl::flat_hash_map<std::string, std::string> places_;  // The keys are the names that the model knows.
};

void ToolReader::Read(const Json& list, FieldReader* fields) {
  ReadToolList(list, "tools", "name", fields,
               [&](const Json& tool, const std::string& place) { return ReadTool(tool, place, /*space=*/"", fields); });
}

std::string ToolReader::ReadTool(const Json& tool, const std::string& place, const std::string& space,
                                 FieldReader* parent) {
  FieldReader fields(tool, place + ".", parent);
  const std::optional<std::string> type = fields.String("type");
  const std::string name = fields.String("name").value_or("");
  if (!type.has_value()) {
    fields.Fail("type", tool.contains("function") ? "is missing; it, the name and what follows it stand beside each "
                                                    "other, unlike in chats"
                                                  : "is missing");
  } else if (*type != "function" && *type != "custom" && (*type != "namespace" || !space.empty())) {
    fields.Fail("type", absl::StrCat("is ", Dump(*type), ", which is not supported: only ",
                                     space.empty() ? "function, custom and namespace are" : "function and custom are",
                                     "; other tools run on OpenAI's servers, or only its models know them"));
  } else if (name.empty()) {
    fields.Fail("name", tool.contains("function") ? "is missing; it and what follows it belong beside the type, unlike "
                                                    "in chats"
                                                  : "is missing or empty");
  } else if (*type == "function") {
    ReadFunction(place, {.name = name, .space = space}, &fields);
  } else if (*type == "custom") {
    ReadCustom(place, {.name = name, .space = space, .is_custom = true}, &fields);
  } else {
    ReadSpace(place, name, &fields);
  }
  fields.AcceptOnly("defer_loading", "[false]", "the chat template shows all tools");
  fields.Ignore({"allowed_callers"});
  fields.RefuseOthers();
  return name;
}

void ToolReader::ReadFunction(const std::string& place, ResponseTool names, FieldReader* tool) {
  Json function = Json::object();
  if (const auto description = tool->String("description")) function["description"] = *description;
  if (const Json* const parameters = tool->Object("parameters")) function["parameters"] = *parameters;
  if (tool->Bool("strict").value_or(false)) function["strict"] = true;
  tool->Object("output_schema");
  Add(place, std::move(names), std::move(function), tool);
}

// Returns what the model should know of the format of an input.
std::string ReadFormat(const std::string& place, FieldReader* tool) {
  const Json* const format = tool->Object("format");
  if (format == nullptr) return "";
  FieldReader reader(*format, place + ".format.", tool);
  const std::string type = reader.String("type").value_or("");
  std::string text;
  if (type == "grammar") {
    const std::string syntax = reader.String("syntax").value_or("");
    if (syntax != "lark" && syntax != "regex") {
      reader.Fail("syntax", absl::StrCat("is ", Dump(syntax), ", it must be lark or regex"));
    }
    const std::string definition = reader.String("definition").value_or("");
    if (definition.empty()) reader.Fail("definition", "is missing or empty");
    text = absl::StrCat("The input must match this ", syntax == "lark" ? "grammar of Lark" : "regular expression",
                        ":\n", definition);
  } else if (type != "text") {
    reader.Fail("type", absl::StrCat("is ", Dump(type), ", it must be text or grammar"));
  }
  reader.RefuseOthers();
  return text;
}

void ToolReader::ReadCustom(const std::string& place, ResponseTool names, FieldReader* tool) {
  const std::string description = tool->String("description").value_or("");
  const std::string format = ReadFormat(place, tool);
  Json function = Json::object();
  if (!description.empty() || !format.empty()) {
    const char* const separator = description.empty() || format.empty() ? "" : "\n\n";
    function["description"] = absl::StrCat(description, separator, format);
  }
  function["parameters"] = {{"type", "object"},
                            {"properties", {{kInput, {{"type", "string"}}}}},
                            {"required", {kInput}},
                            {"additionalProperties", false}};
  Add(place, std::move(names), std::move(function), tool);
}

void ToolReader::ReadSpace(const std::string& place, const std::string& space, FieldReader* tool) {
  tool->String("description");
  const Json* const list = tool->Find("tools");
  if (list == nullptr || !list->is_array()) {
    return tool->Fail("tools", list == nullptr ? "is missing" : absl::StrCat(Describe(*list), ", it must be a list"));
  }
  ReadToolList(*list, place + ".tools", "name", tool, [&](const Json& inner, const std::string& inner_place) {
    return ReadTool(inner, inner_place, space, tool);
  });
}

void ToolReader::Add(const std::string& place, ResponseTool names, Json function, FieldReader* tool) {
  const std::string name = NameInSpace(names.space, names.name);
  const auto [first, is_new] = places_.emplace(name, place);
  if (!is_new) return tool->Fail("name", absl::StrCat("is ", Dump(name), ", which ", first->second, " has already"));
  Json named = {{"name", name}};
  named.update(function);
  if (!names.space.empty() || names.is_custom) settings_->tools[name] = std::move(names);
  tools.push_back({{"type", "function"}, {"function", std::move(named)}});
  fields_of_tools.push_back(place);
}

// Returns the name in {"type": "function" or "custom", "name": ...}.
std::string ReadChosenName(const std::string& type, FieldReader* tool) {
  if (type != "function" && type != "custom") {
    tool->Fail("type", absl::StrCat("is ", Dump(type), ", it must be function or custom"));
  }
  const std::string name = tool->String("name").value_or("");
  if (name.empty()) tool->Fail("name", "is missing or empty");
  return name;
}

// Reads a choice that is an object. Returns how it makes the model call tools, if it does.
std::optional<ForcedChoice> ReadChoiceObject(const Json& choice, const Json& tools, FieldReader* fields, v1::Chat* chat,
                                             GenerateCall* call) {
  FieldReader reader(choice, "tool_choice.", fields);
  const std::string type = reader.String("type").value_or("");
  std::optional<ForcedChoice> forced;
  if (type == "allowed_tools") {
    const AllowedTools allowed = ReadAllowedList(&reader);
    std::vector<ListedTool> listed;
    if (allowed.tools != nullptr) {
      ReadTypedList(*allowed.tools, "tool_choice.tools", "function", &reader,
                    [&](const std::string& tool_type, const std::string& place, FieldReader* tool) {
                      listed.push_back({.name = ReadChosenName(tool_type, tool), .field = place + ".name"});
                    });
    }
    if (!reader.error().has_value()) KeepListedTools(listed, tools, &reader, chat, call);
    if (allowed.is_required) forced = {.value = "is \"required\""};
  } else if (type == "function" || type == "custom") {
    forced = {.value = absl::StrCat("names a ", type == "function" ? "function" : "custom tool"),
              .name = ReadChosenName(type, &reader),
              .name_field = "tool_choice.name"};
  } else {
    reader.Fail("type", reader.Find("type") == nullptr
                            ? "is missing"
                            : absl::StrCat("is ", Dump(type), ", it must be function, custom or allowed_tools"));
  }
  reader.RefuseOthers();
  return forced;
}

void ReadToolChoice(const Json& choice, const ToolReader& read, FieldReader* fields, v1::GenerateRequest* request,
                    GenerateCall* call) {
  v1::Chat* const chat = request->mutable_chat();
  std::optional<ForcedChoice> forced;
  if (choice.is_object()) {
    forced = ReadChoiceObject(choice, read.tools, fields, chat, call);
  } else if (choice == "none") {
    chat->clear_tools();  // A model that knows no tools calls none.
  } else if (choice == "required") {
    forced = {.value = "is \"required\""};
  } else if (choice != "auto") {
    fields->Fail("tool_choice",
                 absl::StrCat(Describe(choice), ", it must be none, auto, required or an object with a type"));
  }
  if (fields->error().has_value() || !forced.has_value()) return;
  forced->tool_fields = read.fields_of_tools;
  ForceTools(*forced, &read.tools, fields, *request, call);
}

}  // namespace

void ReadResponseTools(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call,
                       ResponseSettings* settings) {
  call->names.tool_parameters = "parameters";
  call->has_parallel_tool_calls = fields->Bool("parallel_tool_calls").value_or(true);
  const Json* const given = fields->Find("tools");
  const Json* const choice = fields->Find("tool_choice");
  if (given != nullptr && !given->is_array()) {
    return fields->Fail("tools", absl::StrCat(Describe(*given), ", it must be a list"));
  }
  ToolReader read(settings);
  if (given != nullptr) read.Read(*given, fields);
  if (fields->error().has_value()) return;
  call->tools = ToolNames(read.tools);
  call->parameters = ParametersOfTools(read.tools);
  if (!read.tools.empty()) request->mutable_chat()->set_tools(Dump(read.tools));
  if (choice != nullptr) ReadToolChoice(*choice, read, fields, request, call);
  call->may_call_tools = !request->chat().tools().empty();
  if (call->may_call_tools && call->forced_tools.empty() && !fields->error().has_value()) {
    RestrictTools(read.tools, read.fields_of_tools, fields, *request, call);
  }
}

std::string NameInSpace(const std::string& space, const std::string& name) {
  return space.empty() ? name : absl::StrCat(space, ".", name);
}

std::string CustomArguments(const std::string& input) {
  return Dump(Json{{kInput, input}});
}

std::string CustomInput(const std::string& arguments) {
  const Json json = ParsePart(arguments);
  if (!json.is_object()) return arguments;
  const auto input = json.find(kInput);
  return input == json.end() || !input->is_string() ? arguments : input->get<std::string>();
}

}  // namespace quire
