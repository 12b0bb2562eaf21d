// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_WEB_REQUEST_ID_H_
#define QUIRE_GATEWAY_WEB_REQUEST_ID_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

inline constexpr size_t kMaxRequestIdSize = 128;

// Returns a name of 32 hexadecimal digits that no other request has.
std::string NewRequestId();

// Returns whether a client may name its request so: 1 to kMaxRequestIdSize letters, digits, '-', '_', '.', ':' or '/'.
bool IsRequestId(absl::string_view text);

}  // namespace quire

#endif  // QUIRE_GATEWAY_WEB_REQUEST_ID_H_
