// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_DIGEST_H_
#define QUIRE_SECURITY_DIGEST_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace quire {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest Sha256(absl::string_view bytes);

// Reads bytes from two hexadecimal digits each, in upper or lower case. Returns nothing when `hex` is anything else.
std::optional<std::string> ParseHex(absl::string_view hex);

// Reads a digest from its 64 hexadecimal digits, in upper or lower case. Returns nothing when `hex` is anything else.
std::optional<Sha256Digest> ParseSha256(absl::string_view hex);

}  // namespace quire

#endif  // QUIRE_SECURITY_DIGEST_H_
