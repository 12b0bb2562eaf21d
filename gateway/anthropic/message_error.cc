// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_error.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/strip.h"
#include "base/json_text.h"

namespace quire {
namespace {

constexpr int kOverloaded = 529;

// Codes of errors with 429 that come from the load of the server, and not from what the caller may have.
constexpr absl::string_view kLoadCodes[] = {"queue_full", "too_many_requests", "too_many_batch_requests",
                                            "too_many_long_texts", "overloaded"};

const char* TypeOf(int http_code) {
  switch (http_code) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 504:
      return "timeout_error";
    case kOverloaded:
      return "overloaded_error";
    default:
      return http_code < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

bool IsMessagePath(absl::string_view path) {
  return absl::ConsumePrefix(&path, "/v1/messages") && (path.empty() || path[0] == '/');
}

int MessageErrorCode(const ApiError& error) {
  const bool is_load = error.http_code == 429 && std::find(std::begin(kLoadCodes), std::end(kLoadCodes),
                                                           error.code.value_or("")) != std::end(kLoadCodes);
  return is_load || error.http_code == 503 ? kOverloaded : error.http_code;
}

std::string MessageErrorBody(const ApiError& error, const std::string& request_id) {
  std::string body = "{\"type\":\"error\",\"error\":{\"type\":";
  AppendJsonString(TypeOf(MessageErrorCode(error)), &body);
  body += ",\"message\":";
  // Claude Code shortens its conversation when it reads these words.
  const bool is_too_long = error.code == "context_length_exceeded";
  AppendJsonString((is_too_long ? "prompt is too long: " : "") + error.message, &body);
  body += "},\"request_id\":";
  if (request_id.empty()) {
    body += "null";
  } else {
    AppendJsonString(request_id, &body);
  }
  body += '}';
  return body;
}

}  // namespace quire
