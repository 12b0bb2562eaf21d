// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_RESPONSES_READ_RESPONSE_H_
#define QUIRE_TESTS_GATEWAY_RESPONSES_READ_RESPONSE_H_

#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gateway/openai/body_json.h"
#include "gateway/responses/response_call.h"
#include "gtest/gtest.h"

// Read bodies of requests. A body that is refused or accepted against the expectation of the test fails it.

namespace quire {

// A body with these members. A member of the same name replaces a default.
inline std::string ResponseBody(const std::string& members) {
  return absl::StrCat(R"({"input": "x")", members.empty() ? "" : ", ", members, "}");
}

inline GenerateCall ReadResponse(const std::string& members) {
  std::variant<GenerateCall, ApiError> call = ReadResponseCall(*ParseBody(ResponseBody(members)));
  if (const auto* const error = std::get_if<ApiError>(&call)) {
    ADD_FAILURE() << error->message;
    return {.requests = {{}}};
  }
  return std::get<GenerateCall>(std::move(call));
}

inline v1::Chat ReadResponseChat(const std::string& members) {
  return ReadResponse(members).requests[0].chat();
}

// The message of the error that a body with these members gets.
inline std::string ResponseErrorOf(const std::string& members) {
  const auto call = ReadResponseCall(*ParseBody(ResponseBody(members)));
  const auto* const error = std::get_if<ApiError>(&call);
  if (error == nullptr) ADD_FAILURE() << members << " was accepted";
  return error == nullptr ? "" : error->message;
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_RESPONSES_READ_RESPONSE_H_
