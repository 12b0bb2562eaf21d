// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_FORCED_TOOLS_H_
#define QUIRE_GATEWAY_OPENAI_FORCED_TOOLS_H_

#include <optional>
#include <string>
#include <vector>

#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// How tool_choice makes the model call tools.
struct ForcedChoice {
  std::string value;                               // Describes it in errors, such as "names a function".
  std::optional<std::string> name = std::nullopt;  // The only tool that may be called.
  std::string name_field = {};                     // The field that has this name.
  std::vector<std::string> tool_fields = {};       // The field of each tool, if they are not tools[0], tools[1] ...
};

// Makes the answer consist of calls of `tools`, which have OpenAI's form. Leaves an error if there are none, if none
// has the name, if the schema of one is not that of an object, or if another field of the request contradicts the
// choice. REQUIRES: call->tools has the names of the tools that the client allows.
void ForceTools(const ForcedChoice& choice, const Json* tools, FieldReader* fields, const v1::GenerateRequest& request,
                GenerateCall* call);

// If one of `tools`, which have OpenAI's form, is strict, makes the calls that the model chooses have arguments of the
// schemas of strict tools, where the request allows a guide. Leaves an error if such a schema is not that of an object.
// `tool_fields` is as in ForcedChoice. REQUIRES: as for ForceTools.
void RestrictTools(const Json& tools, const std::vector<std::string>& tool_fields, FieldReader* fields,
                   const v1::GenerateRequest& request, GenerateCall* call);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_FORCED_TOOLS_H_
