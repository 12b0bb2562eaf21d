// SPDX-License-Identifier: Apache-2.0

#include "security/seal_key.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "security/digest.h"

namespace quire {

SealKey SealKey::Random() {
  Bytes key;
  QUIRE_CHECK_EQ(RAND_bytes(key.data(), static_cast<int>(key.size())), 1);
  return SealKey(key);
}

absl::StatusOr<SealKey> SealKey::FromSecret(absl::string_view secret) {
  if (secret.size() < kMinSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the secret has ", secret.size(), " bytes, it must have at least ", kMinSecretBytes));
  }
  return SealKey(Sha256(secret));
}

SealKey::Bytes SealKey::SealOf(absl::string_view message) const {
  Bytes seal;
  unsigned int size = 0;
  QUIRE_CHECK(HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()),
                   reinterpret_cast<const unsigned char*>(message.data()), message.size(), seal.data(),
                   &size) != nullptr);
  QUIRE_CHECK_EQ(size, seal.size());
  return seal;
}

std::string SealKey::Seal(absl::string_view message) const {
  const Bytes seal = SealOf(message);
  return absl::StrCat(message, absl::string_view(reinterpret_cast<const char*>(seal.data()), seal.size()));
}

std::optional<std::string> SealKey::Open(absl::string_view sealed) const {
  if (sealed.size() < std::tuple_size_v<Bytes>) return std::nullopt;
  const absl::string_view message = sealed.substr(0, sealed.size() - std::tuple_size_v<Bytes>);
  const Bytes seal = SealOf(message);
  if (CRYPTO_memcmp(seal.data(), sealed.data() + message.size(), seal.size()) != 0) return std::nullopt;
  return std::string(message);
}

}  // namespace quire
