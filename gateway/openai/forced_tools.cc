// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/forced_tools.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace quire {
namespace {

constexpr const char* kReferringKeywords[] = {"$ref", "allOf", "anyOf", "oneOf"};

// Returns a tool. Its parameters must describe an object; otherwise this leaves an error. REQUIRES: the tool was read
// without error.
CallableTool CallableOf(const Json& tool, const std::string& path, const std::string& parameters_name,
                        FieldReader* fields) {
  const Json& function = tool["function"];
  // A function without parameters takes an empty object.
  Json parameters = {{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};
  if (const auto given = function.find("parameters"); given != function.end() && !given->is_null()) {
    parameters = *given;
    // A schema that refers to others has their types.
    const bool refers = std::any_of(std::begin(kReferringKeywords), std::end(kReferringKeywords),
                                    [&](const char* keyword) { return parameters.contains(keyword); });
    if (!refers) parameters.emplace("type", "object");
    if (const auto type = parameters.find("type"); type != parameters.end() && *type != "object") {
      fields->Fail(absl::StrCat(path, ".", parameters_name, ".type"),
                   absl::StrCat(Describe(*type), ", it must be \"object\""));
    }
  }
  return {.name = function["name"].get<std::string>(), .parameters = Dump(parameters), .field = path};
}

std::string PathOf(size_t tool, const std::vector<std::string>& tool_fields) {
  return tool < tool_fields.size() ? tool_fields[tool] : absl::StrCat("tools[", tool, "]");
}

bool IsStrict(const Json& tool) {
  const auto strict = tool["function"].find("strict");
  return strict != tool["function"].end() && *strict == true;
}

// Leaves those out that the client does not allow.
void KeepAllowed(const std::vector<std::string>& names, std::vector<CallableTool>* tools) {
  const absl::flat_hash_set<std::string> allowed(names.begin(), names.end());
  std::erase_if(*tools, [&](const CallableTool& tool) { return !allowed.contains(tool.name); });
}

}  // namespace

void ForceTools(const ForcedChoice& choice, const Json* tools, FieldReader* fields, const v1::GenerateRequest& request,
                GenerateCall* call) {
  const std::string& value = choice.value;
  if (request.chat().tools().empty()) return fields->Fail("tool_choice", value + ", but tools is missing or empty");
  if (request.has_guided()) {
    return fields->Fail("tool_choice", absl::StrCat(value, ", which cannot be combined with ", call->names.guide));
  }
  const char* const conflict = ", which cannot be combined with tool_choice, which ";
  if (request.stopping().ignore_eos()) return fields->Fail("ignore_eos", absl::StrCat("is true", conflict, value));
  if (const uint32_t min_tokens = request.stopping().min_tokens(); min_tokens > 0) {
    return fields->Fail("min_tokens", absl::StrCat("is ", min_tokens, conflict, value));
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    const std::string path = PathOf(i, choice.tool_fields);
    call->forced_tools.push_back(CallableOf((*tools)[i], path, call->names.tool_parameters, fields));
  }
  KeepAllowed(call->tools, &call->forced_tools);
  if (choice.name.has_value() && !fields->error().has_value()) {
    call->names_tool = true;
    std::erase_if(call->forced_tools, [&](const CallableTool& tool) { return tool.name != *choice.name; });
    if (call->forced_tools.empty()) {
      fields->Fail(choice.name_field,
                   absl::StrCat("is ", Json(*choice.name).dump(), ", which no function of tools has"));
    }
  }
  call->tools.clear();
  for (const CallableTool& tool : call->forced_tools) call->tools.push_back(tool.name);
  call->names.guide = "tools";
}

void RestrictTools(const Json& tools, const std::vector<std::string>& tool_fields, FieldReader* fields,
                   const v1::GenerateRequest& request, GenerateCall* call) {
  const v1::StoppingParams& stopping = request.stopping();
  if (request.has_guided() || stopping.ignore_eos() || stopping.min_tokens() > 0) return;
  if (std::none_of(tools.begin(), tools.end(), IsStrict)) return;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (IsStrict(tools[i])) {
      call->strict_tools.push_back(CallableOf(tools[i], PathOf(i, tool_fields), call->names.tool_parameters, fields));
    } else {
      call->strict_tools.push_back({.name = tools[i]["function"]["name"].get<std::string>(),
                                    .parameters = "{}",
                                    .field = PathOf(i, tool_fields),
                                    .is_strict = false});
    }
  }
  KeepAllowed(call->tools, &call->strict_tools);
  call->names.guide = "tools";
}

}  // namespace quire
