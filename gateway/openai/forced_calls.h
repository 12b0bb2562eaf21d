// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_
#define QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/api_error.h"
#include "gateway/openai/reasoning_splitter.h"
#include "gateway/openai/tool_call_parser.h"

namespace quire {

// A tool that an answer may call.
struct CallableTool {
  std::string name;
  std::string parameters;  // A JSON schema of an object.
  std::string field;       // Where the client has described it, such as "tools[2]" or "tools[2].tools[0]".
  bool is_strict = true;   // Otherwise a call has any arguments.
};

// Size at which a grammar of calls is cut. A guide of the manager has no more than this, so it refuses such a grammar.
inline constexpr size_t kMaxCallGrammarBytes = 1 << 16;

// Returns an error if the name of a tool or of an argument would be read as something else in an answer, such as "a>b"
// between tags.
std::optional<ApiError> UnwritableName(ToolCallFormat format, const std::vector<CallableTool>& tools);

// Returns a grammar in Lark for answers that call at least one of the tools, or exactly one if `is_single`, in the form
// that AnswerParser reads. Thoughts that come first are written as `reasoning` says. A message of harmony ends the
// answer, so such an answer has one call. In formats with a tag around each argument, the schema of each property
// holds, except that of a string: only its enum and const. Keywords about several properties do not hold, other than
// "required". REQUIRES: `format` is not kNone, and there is a tool.
std::string ForcedCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools, bool is_single,
                              Thoughts thoughts, const ReasoningSyntax& reasoning = UsualReasoning());

// Returns a grammar for the answers of a model that chooses whether it calls tools. They are any text, in which the tag
// of calls begins nothing but calls, as in ForcedCallGrammar. The text ends behind the calls. Returns nothing if a
// grammar cannot tell the tag from other text: in the formats of Llama 3, Mistral, harmony and DeepSeek V3.2, and with
// special tokens around thoughts that it cannot name.
std::optional<std::string> StrictCallGrammar(ToolCallFormat format, const std::vector<CallableTool>& tools,
                                             bool is_single, Thoughts thoughts,
                                             const ReasoningSyntax& reasoning = UsualReasoning());

// Returns whether answers of the grammar begin behind the tag of calls. The tag of Mistral is a special token whose
// name no grammar can have.
bool ForcedCallsBeginBehindTag(ToolCallFormat format);

// If the description of an error in such a grammar is about the parameters of a tool, cuts it to what it says about
// them, and returns their field, such as "tools[2].function.parameters". Otherwise returns nothing. `name` is that of
// the field within the tool.
std::optional<std::string> TakeParametersField(absl::string_view name, std::string* description);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_FORCED_CALLS_H_
