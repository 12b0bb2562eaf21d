// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_ANTHROPIC_MESSAGE_TOOLS_H_
#define QUIRE_GATEWAY_ANTHROPIC_MESSAGE_TOOLS_H_

#include <set>
#include <string>

#include "gateway/anthropic/cache_breakpoints.h"
#include "gateway/openai/field_reader.h"
#include "gateway/openai/generate_call.h"

namespace quire {

// Reads the fields `tools` and `tool_choice` into the chat of the request and into `call`. A tool with `defer_loading`
// is left out unless its name is one of `referenced`. Leaves an error for a tool that runs on Anthropic's servers, and
// for two tools with one name. Returns the breakpoints of the tools, each of which is one behind all tools, because
// chat templates write them together.
CacheBreakpoints ReadMessageTools(const std::set<std::string>& referenced, FieldReader* fields,
                                  v1::GenerateRequest* request, GenerateCall* call);

}  // namespace quire

#endif  // QUIRE_GATEWAY_ANTHROPIC_MESSAGE_TOOLS_H_
