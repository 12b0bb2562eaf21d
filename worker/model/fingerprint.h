// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_FINGERPRINT_H_
#define QUIRE_WORKER_MODEL_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Computes a 128-bit digest of a sequence of byte strings, about as fast as memory can be read. It distinguishes two
// sets of weights, but it is not a cryptographic hash. The result is the same on every machine.
class Fingerprint {
 public:
  // The borders between strings count: Add("ab"), Add("c") gives another digest than Add("a"), Add("bc").
  void Add(std::string_view bytes);

  // Returns the digest as 32 hexadecimal digits.
  std::string Hex() const;

 private:
  static constexpr int kLanes = 4;  // Independent chains keep the multiplier busy.
  uint64_t lanes_[kLanes] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89};
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_FINGERPRINT_H_
