// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_ANTHROPIC_READ_MESSAGE_H_
#define QUIRE_TESTS_GATEWAY_ANTHROPIC_READ_MESSAGE_H_

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gateway/anthropic/message_call.h"
#include "gateway/openai/body_json.h"
#include "gtest/gtest.h"

// Read bodies of requests. A body that is refused or accepted against the expectation of the test fails it.

namespace quire {

// A body with these members. A member of the same name replaces a default.
inline std::string MessageBody(const std::string& members) {
  return absl::StrCat(R"({"max_tokens": 9, "messages": [{"role": "user", "content": "x"}])",
                      members.empty() ? "" : ", ", members, "}");
}

inline GenerateCall ReadMessage(const std::string& members) {
  std::variant<GenerateCall, ApiError> call = ReadMessageCall(*ParseBody(MessageBody(members)));
  if (const auto* const error = std::get_if<ApiError>(&call)) {
    ADD_FAILURE() << error->message;
    return {.requests = {{}}};
  }
  return std::get<GenerateCall>(std::move(call));
}

inline v1::Chat ReadChat(const std::string& members) {
  return ReadMessage(members).requests[0].chat();
}

// The message of the error that a body with these members gets.
inline std::string MessageErrorOf(const std::string& members) {
  const auto call = ReadMessageCall(*ParseBody(MessageBody(members)));
  const auto* const error = std::get_if<ApiError>(&call);
  if (error == nullptr) ADD_FAILURE() << members << " was accepted";
  return error == nullptr ? "" : error->message;
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_ANTHROPIC_READ_MESSAGE_H_
