// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BASE_FINGERPRINT_H_
#define QUIRE_BASE_FINGERPRINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace quire {

// Computes a 128-bit digest of a sequence of byte strings, about as fast as memory can be read. It distinguishes two
// sets of weights, but it is not a cryptographic hash. The result is the same on every machine.
class Fingerprint {
 public:
  // The borders between strings count: Add("ab"), Add("c") gives another digest than Add("a"), Add("bc").
  void Add(std::string_view bytes);

  // Returns the digest as 32 hexadecimal digits.
  std::string Hex() const;
  // Returns the lower half of the digest.
  uint64_t Low() const { return Halves().second; }

 private:
  std::pair<uint64_t, uint64_t> Halves() const;

  static constexpr int kLanes = 4;  // Independent chains keep the multiplier busy.
  uint64_t lanes_[kLanes] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89};
};

// The digests of the tensors of a model, by their names. The fingerprint of the model is a digest of these and of a
// text that says what else its numbers depend on. So it does not depend on the order in which tensors are read, and the
// ranks of a group can digest some tensors each: joined, they have the fingerprint of a process that reads all of them.
class TensorDigests {
 public:
  TensorDigests() = default;
  explicit TensorDigests(std::string text) : text_(std::move(text)) {}

  // Adds a tensor, which `description` tells from one with the same bytes. Does nothing if it has a digest.
  void Add(const std::string& name, std::string_view description, std::string_view bytes);
  // Notes that another rank digests the tensor.
  void Expect(const std::string& name) { digests_.try_emplace(name); }

  // Adds the digests of another rank. Returns INVALID_ARGUMENT, and changes nothing, when the two have another text or
  // different digests of a tensor.
  absl::Status Join(const TensorDigests& other);

  // Returns 32 hexadecimal digits, or nothing while the digest of a tensor is missing.
  std::string fingerprint() const;

  const std::string& text() const { return text_; }
  // The digests by the names of the tensors. Empty where one is missing.
  const std::map<std::string, std::string>& digests() const { return digests_; }
  // Sets the digest of a tensor, which another process has told. Empty: it is missing.
  void Set(const std::string& name, std::string digest) { digests_[name] = std::move(digest); }

  bool operator==(const TensorDigests&) const = default;

 private:
  std::string text_;
  std::map<std::string, std::string> digests_;  // Empty where one is missing.
};

}  // namespace quire

#endif  // QUIRE_BASE_FINGERPRINT_H_
