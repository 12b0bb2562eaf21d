// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_OPENAI_CALL_ID_H_
#define QUIRE_GATEWAY_OPENAI_CALL_ID_H_

#include <string>

#include "absl/strings/string_view.h"
#include "gateway/openai/tool_call_parser.h"

namespace quire {

// Makes the id of a call from a name that no other call has: `prefix` and nine letters and digits. Templates of Mistral
// accept the nine only, so in their format there is no prefix.
std::string CallId(absl::string_view prefix, const std::string& name, ToolCallFormat format);

}  // namespace quire

#endif  // QUIRE_GATEWAY_OPENAI_CALL_ID_H_
