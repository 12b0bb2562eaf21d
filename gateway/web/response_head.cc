// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/response_head.h"

#include "absl/strings/str_cat.h"
#include "gateway/web/request_id.h"
#include "serving/http_head.h"

namespace quire {

std::string ResponseHead::Text() const {
  std::string text = absl::StrCat("HTTP/1.1 ", code, " ", HttpReason(code), "\r\nContent-Type: ", content_type,
                                  "\r\nX-Request-Id: ", request_id.empty() ? NewRequestId() : std::string(request_id),
                                  "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                                  "Cross-Origin-Resource-Policy: same-origin\r\n");
  if (!keeps_alive) {
    text += "Connection: close\r\n";
  } else if (is_http10) {
    text += "Connection: keep-alive\r\n";  // HTTP/1.0 closes connections otherwise.
  }
  return text;
}

}  // namespace quire
