// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/error_body.h"

#include "base/json_text.h"

namespace quire {
namespace {

void AppendOrNull(const std::optional<std::string>& text, std::string* out) {
  if (text.has_value()) {
    AppendJsonString(*text, out);
  } else {
    out->append("null");
  }
}

}  // namespace

std::string ErrorBody(absl::string_view message, absl::string_view type, const std::optional<std::string>& param,
                      const std::optional<std::string>& code) {
  std::string body = "{\"error\":{\"message\":";
  AppendJsonString(message, &body);
  body += ",\"type\":";
  AppendJsonString(type, &body);
  body += ",\"param\":";
  AppendOrNull(param, &body);
  body += ",\"code\":";
  AppendOrNull(code, &body);
  body += "}}";
  return body;
}

}  // namespace quire
