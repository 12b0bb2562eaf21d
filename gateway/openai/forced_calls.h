// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_
#define QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_

#include <optional>
#include <string>
#include <vector>

#include "gateway/openai/reasoning_splitter.h"
#include "gateway/openai/tool_call_parser.h"

namespace quire {

// A tool that an answer may call.
struct CallableTool {
  std::string name;
  std::string parameters;  // A JSON schema of an object.
  std::string field;       // Says where the client has described it, such as "tools[2]".
};

// Returns a grammar in Lark for answers that call at least one of the tools, or exactly one if `is_single`, in the form
// that ToolCallParser reads. The tag of Mistral is a special token, which no grammar can have, so such an answer begins
// behind it. REQUIRES: `format` is not kNone, and there is a tool.
std::string ForcedCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools, bool is_single,
                              Thoughts thoughts);

// If the description of an error in such a grammar is about the parameters of a tool, cuts it to what it says about
// them, and returns their field, such as "tools[2].function.parameters". Otherwise returns nothing.
std::optional<std::string> TakeParametersField(std::string* description);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_
