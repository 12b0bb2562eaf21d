// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_TOOL_LIST_H_
#define QUIRE_GATEWAY_OPENAI_TOOL_LIST_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// Reads the tools of a list with this path, such as "tools". `read` gets each and its place, and returns its name.
// Leaves an error for what is no object, and for two tools with one name, which is the field `name_field` of a tool.
void ReadToolList(const Json& tools, const std::string& path, const char* name_field, FieldReader* fields,
                  absl::FunctionRef<std::string(const Json& tool, const std::string& place)> read);

// Returns the names of tools, which have OpenAI's form: {"type": "function", "function": {"name", ...}}.
std::vector<std::string> ToolNames(const Json& tools);

// What a tool_choice of the type allowed_tools says.
struct AllowedTools {
  bool is_required = false;     // One of them must be called.
  const Json* tools = nullptr;  // A list that is not empty. Null after an error.
};

// Reads "mode" and "tools".
AllowedTools ReadAllowedList(FieldReader* fields);

// A tool that tool_choice lists.
struct ListedTool {
  std::string name;
  std::string field;  // It has this name.
};

// Leaves the listed tools alone in the chat and in call->tools. Leaves an error for a name that none of `tools` has.
// These have OpenAI's form.
void KeepListedTools(const std::vector<ListedTool>& listed, const Json& tools, FieldReader* fields, v1::Chat* chat,
                     GenerateCall* call);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_TOOL_LIST_H_
