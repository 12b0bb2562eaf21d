#include "security/digest.h"

#include <openssl/sha.h>

namespace quire {

static_assert(SHA256_DIGEST_LENGTH == 32);

std::array<uint8_t, 32> Sha256(absl::string_view bytes) {
  std::array<uint8_t, 32> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

}  // namespace quire
