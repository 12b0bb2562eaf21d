#ifndef QUIRE_WORKER_MODEL_FINGERPRINT_H_
#define QUIRE_WORKER_MODEL_FINGERPRINT_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// A 128-bit digest of a sequence of byte strings, at memory speed: tells two sets of weights apart, does not resist an
// attacker. The same on every machine.
class Fingerprint {
 public:
  // Add("ab"), Add("c") differs from Add("a"), Add("bc").
  void Add(std::string_view bytes);

  // 32 hexadecimal digits.
  std::string Hex() const;

 private:
  static constexpr int kLanes = 4;  // Independent chains keep the multiplier busy.
  uint64_t lanes_[kLanes] = {0x243f6a8885a308d3, 0x13198a2e03707344, 0xa4093822299f31d0, 0x082efa98ec4e6c89};
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_FINGERPRINT_H_
