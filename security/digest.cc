// SPDX-License-Identifier: Apache-2.0

#include "security/digest.h"

#include <openssl/sha.h>

#include <algorithm>

#include "base/number_text.h"

namespace quire {

static_assert(SHA256_DIGEST_LENGTH == std::tuple_size_v<Sha256Digest>);

Sha256Digest Sha256(absl::string_view bytes) {
  Sha256Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

std::optional<std::string> ParseHex(absl::string_view hex) {
  if (hex.size() % 2 != 0) return std::nullopt;
  std::string bytes(hex.size() / 2, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = HexValue(hex[2 * i]), low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::optional<Sha256Digest> ParseSha256(absl::string_view hex) {
  const std::optional<std::string> bytes = ParseHex(hex);
  Sha256Digest digest;
  if (!bytes.has_value() || bytes->size() != digest.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), digest.begin());
  return digest;
}

}  // namespace quire
