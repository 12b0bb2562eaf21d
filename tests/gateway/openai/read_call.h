// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_OPENAI_READ_CALL_H_
#define QUIRE_TESTS_GATEWAY_OPENAI_READ_CALL_H_

#include <string>
#include <variant>

#include "gateway/openai/generate_call.h"
#include "gtest/gtest.h"

// Read bodies of requests. A body that is refused or accepted against the expectation of the test fails it.

namespace quire {

inline GenerateCall Completion(const std::string& body) {
  std::variant<GenerateCall, ApiError> call = ReadCompletionCall(*ParseBody(body));
  if (const auto* error = std::get_if<ApiError>(&call)) ADD_FAILURE() << error->message;
  return std::get<GenerateCall>(call);
}

inline GenerateCall Chat(const std::string& body) {
  std::variant<GenerateCall, ApiError> call = ReadChatCall(*ParseBody(body));
  if (const auto* error = std::get_if<ApiError>(&call)) ADD_FAILURE() << error->message;
  return std::get<GenerateCall>(call);
}

// The error of a completion with this member besides the prompt.
inline ApiError CompletionError(const std::string& member) {
  const auto call = ReadCompletionCall(*ParseBody("{\"prompt\": \"x\", " + member + "}"));
  const auto* const error = std::get_if<ApiError>(&call);
  if (error == nullptr) ADD_FAILURE() << member << " was accepted";
  return error == nullptr ? ApiError() : *error;
}

// The error of a chat with this member besides the messages.
inline ApiError ChatError(const std::string& member) {
  const auto call =
      ReadChatCall(*ParseBody("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], " + member + "}"));
  const auto* const error = std::get_if<ApiError>(&call);
  if (error == nullptr) ADD_FAILURE() << member << " was accepted";
  return error == nullptr ? ApiError() : *error;
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_OPENAI_READ_CALL_H_
