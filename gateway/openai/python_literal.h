// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_PYTHON_LITERAL_H_
#define QUIRE_GATEWAY_OPENAI_PYTHON_LITERAL_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gateway/openai/call_object.h"
#include "gateway/openai/field_reader.h"

namespace quire {

// Reads a literal of Python or JSON: a string in single or double quotes, a number, True, False, None, a list, a tuple
// or a dictionary with strings as keys, nested in at most 64 levels. Returns nothing for any other text.
std::optional<Json> ParsePythonLiteral(absl::string_view text);

// Reads a list of calls of functions with arguments by name, such as [f(a=1), g(b='x')]. Returns nothing for any other
// text.
std::optional<std::vector<WholeCall>> ParsePythonCalls(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_PYTHON_LITERAL_H_
