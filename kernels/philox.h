// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PHILOX_H_
#define QUIRE_KERNELS_PHILOX_H_

#include <cstdint>

// Device code needs these attributes of the CUDA compiler.
#if defined(__CUDACC__)
#define QUIRE_HOST_DEVICE_INLINE static __host__ __device__ inline
#else
#define QUIRE_HOST_DEVICE_INLINE static inline
#endif

namespace quire {

// The counter-based generator Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// four random words as a pure function of a key and a counter. There is no state, so no draw depends on how many draws
// came before.

struct PhiloxBlock {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

constexpr int kPhiloxRounds = 10;
constexpr uint32_t kPhiloxMultiplier0 = 0xd2511f53, kPhiloxMultiplier2 = 0xcd9e8d57;

QUIRE_HOST_DEVICE_INLINE PhiloxKey MakePhiloxKey(uint64_t key) {
  return {{uint32_t(key), uint32_t(key >> 32)}};
}

// Returns the key of the next round.
QUIRE_HOST_DEVICE_INLINE PhiloxKey NextPhiloxKey(PhiloxKey key) {
  return {{key.word[0] + 0x9e3779b9, key.word[1] + 0xbb67ae85}};
}

QUIRE_HOST_DEVICE_INLINE PhiloxBlock Philox4x32(PhiloxBlock counter, uint64_t key) {
  PhiloxKey round_key = MakePhiloxKey(key);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxMultiplier0} * counter.word[0];
    const uint64_t b = uint64_t{kPhiloxMultiplier2} * counter.word[2];
    counter = {{uint32_t(b >> 32) ^ counter.word[1] ^ round_key.word[0], uint32_t(b),
                uint32_t(a >> 32) ^ counter.word[3] ^ round_key.word[1], uint32_t(a)}};
    round_key = NextPhiloxKey(round_key);
  }
  return counter;
}

}  // namespace quire

#endif  // QUIRE_KERNELS_PHILOX_H_
