// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/tool_list.h"

#include <cstddef>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace quire {

void ReadToolList(const Json& tools, const std::string& path, const char* name_field, FieldReader* fields,
                  absl::FunctionRef<std::string(const Json& tool, const std::string& place)> read) {
  std::map<std::string, size_t> indices;  // The keys are the names of tools.
  for (size_t i = 0; i < tools.size() && !fields->error().has_value(); ++i) {
    const std::string place = absl::StrCat(path, "[", i, "]");
    if (!tools[i].is_object()) {
      return fields->Fail(FieldError(place, absl::StrCat(Describe(tools[i]), ", it must be an object")));
    }
    const std::string name = read(tools[i], place);
    const auto [first, is_new] = indices.emplace(name, i);
    if (!is_new) {
      fields->Fail(FieldError(absl::StrCat(place, ".", name_field),
                              absl::StrCat("is ", Dump(name), ", which ", path, "[", first->second, "] has already")));
    }
  }
}

std::vector<std::string> ToolNames(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools) names.push_back(tool["function"]["name"].get<std::string>());
  return names;
}

AllowedTools ReadAllowedList(FieldReader* fields) {
  const std::string mode = fields->String("mode").value_or("");
  if (mode != "auto" && mode != "required") {
    fields->Fail("mode", absl::StrCat("is ", Dump(mode), ", it must be auto or required"));
  }
  const Json* const tools = fields->Find("tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    fields->Fail("tools", "is missing, empty or no list, it must name one of the tools at least");
    return {};
  }
  return {.is_required = mode == "required", .tools = tools};
}

void KeepListedTools(const std::vector<ListedTool>& listed, const Json& tools, FieldReader* fields, v1::Chat* chat,
                     GenerateCall* call) {
  absl::flat_hash_map<std::string, const Json*> by_name;
  for (const Json& tool : tools) by_name.emplace(tool["function"]["name"].get<std::string>(), &tool);
  absl::flat_hash_set<const Json*> taken;
  Json kept = Json::array();
  for (const ListedTool& wanted : listed) {
    const auto tool = by_name.find(wanted.name);
    if (tool == by_name.end()) {
      return fields->Fail(
          FieldError(wanted.field, absl::StrCat("is ", Dump(wanted.name), ", which no function of tools has")));
    }
    if (taken.insert(tool->second).second) kept.push_back(*tool->second);
  }
  call->tools = ToolNames(kept);
  chat->set_tools(Dump(kept));
}

}  // namespace quire
