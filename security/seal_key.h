// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SECURITY_SEAL_KEY_H_
#define QUIRE_SECURITY_SEAL_KEY_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace quire {

// A secret with which this process seals what it hands out: others can read a sealed message, but they can neither
// change it nor make one (HMAC-SHA-256). Thread-safe.
class SealKey {
 public:
  static constexpr size_t kMinSecretBytes = 32;

  // A key from the random source of the system. No other process knows it.
  static SealKey Random();

  // The key of everybody who has the same secret. INVALID_ARGUMENT when it has fewer than kMinSecretBytes.
  static absl::StatusOr<SealKey> FromSecret(absl::string_view secret);

  // A key for one purpose, which follows from this one. A message that was sealed for another purpose is not opened.
  SealKey For(absl::string_view purpose) const { return SealKey(SealOf(purpose)); }

  // The message with its seal.
  std::string Seal(absl::string_view message) const;

  // The message in what Seal has returned for a key with the same secret. Nothing for all other bytes.
  std::optional<std::string> Open(absl::string_view sealed) const;

 private:
  using Bytes = std::array<uint8_t, 32>;

  explicit SealKey(const Bytes& key) : key_(key) {}
  Bytes SealOf(absl::string_view message) const;

  Bytes key_;
};

}  // namespace quire

#endif  // QUIRE_SECURITY_SEAL_KEY_H_
