// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_PYTHON_CALL_H_
#define QUIRE_GATEWAY_OPENAI_PYTHON_CALL_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "gateway/openai/call_object.h"

namespace quire {

// Reads a call of the tool f that a model of Llama 3 writes as Python: f.call(key="value", number=3). The values are
// JSON. Returns nothing when the text is something else.
std::optional<WholeCall> ParsePythonCall(absl::string_view code);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_PYTHON_CALL_H_
