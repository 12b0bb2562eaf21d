// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_OPENAI_CHAT_RENDERING_H_
#define QUIRE_TESTS_GATEWAY_OPENAI_CHAT_RENDERING_H_

#include <string>

#include "absl/status/statusor.h"
#include "gateway/openai/field_reader.h"
#include "tests/kv_manager/requests/rendered_chat.h"

namespace quire {

// Returns the prompt of a chat as a client sends it: the gateway reads the body, and the manager renders the
// conversation. The error is that which the client gets.
absl::StatusOr<std::string> RenderBody(const Json& body, const ServedModel& model);

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_OPENAI_CHAT_RENDERING_H_
