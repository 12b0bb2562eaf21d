// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_RESPONSE_HEAD_H_
#define QUIRE_GATEWAY_WEB_RESPONSE_HEAD_H_

#include <string>

#include "absl/strings/string_view.h"

namespace quire {

// What the first lines of a response say.
struct ResponseHead {
  int code;
  absl::string_view content_type;
  absl::string_view request_id;  // Empty for a request that could not be read. It gets a new name.
  bool keeps_alive;
  bool is_http10;

  // Returns the lines with all headers that every response has. Further headers and an empty line must follow.
  std::string Text() const;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_RESPONSE_HEAD_H_
