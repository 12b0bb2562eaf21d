// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_RESPONSES_RESPONSE_TOOLS_H_
#define QUIRE_GATEWAY_RESPONSES_RESPONSE_TOOLS_H_

#include <string>

#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"
#include "gateway/responses/response_settings.h"

namespace quire {

// Reads the fields `tools`, `tool_choice` and `parallel_tool_calls` into the chat of the request, into `call` and into
// `settings`. Leaves an error for a tool of another type, and for two tools with one name.
void ReadResponseTools(FieldReader* fields, v1::GenerateRequest* request, GenerateCall* call,
                       ResponseSettings* settings);

// Returns the name by which the model knows a tool of a namespace. Without a namespace, it is the same.
std::string NameInSpace(const std::string& space, const std::string& name);

// Returns the arguments of the function that stands for a custom tool.
std::string CustomArguments(const std::string& input);

// Returns the input of a custom tool. It is `arguments` where these were cut, or are something else.
std::string CustomInput(const std::string& arguments);

}  // namespace quire

#endif  // QUIRE_GATEWAY_RESPONSES_RESPONSE_TOOLS_H_
