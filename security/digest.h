#ifndef QUIRE_SECURITY_DIGEST_H_
#define QUIRE_SECURITY_DIGEST_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace quire {

// SHA-256 of `bytes`.
std::array<uint8_t, 32> Sha256(absl::string_view bytes);

}  // namespace quire

#endif  // QUIRE_SECURITY_DIGEST_H_
