// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_GROUPS_AVX512_H_
#define QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_GROUPS_AVX512_H_

#include <limits>

#include "kernels/cpu/linear/quantize_kernel.h"

// QuantizeGroups with whole groups in registers. The headers and numbers are the same: sums of so few whole numbers are
// exact in int32 and in float32.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

template <int kVecs>
QUIRE_INLINE void QuantizeGroupInRegisters(const float* x, int8_t* values, GroupHeader* header) {
  constexpr uint32_t kLargestFinite = 0x7f7fffff;
  __m512 v[kVecs];
  // Magnitudes are compared as whole numbers, which have the same order. Infinities and NaNs are the largest.
  __m512i largest_bits = _mm512_setzero_si512();
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
    v[i] = _mm512_loadu_ps(x + i * kLanes);
    largest_bits = _mm512_max_epu32(largest_bits, _mm512_and_si512(_mm512_castps_si512(v[i]), magnitude));
  });
  const uint32_t bits = _mm512_reduce_max_epu32(largest_bits);
  float largest;
  memcpy(&largest, &bits, sizeof(largest));
  if (bits > kLargestFinite || largest < kSmallestMagnitude) {
    memset(values, 0, kVecs * kLanes);
    *header = {bits > kLargestFinite ? std::numeric_limits<float>::quiet_NaN() : 0.0f, 0};
    return;
  }
  const __m512 inverse = _mm512_set1_ps(127.0f / largest);
  __m512i sum = _mm512_setzero_si512();
  Unroll<kVecs>([&]<int i>() __attribute__((always_inline)) {
    const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
    sum = _mm512_add_epi32(sum, rounded);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + i * kLanes), _mm512_cvtepi32_epi8(rounded));
  });
  *header = {largest / 127.0f, float(_mm512_reduce_add_epi32(sum))};
}

inline void QuantizeGroupsInRegisters(const QuantizeGroupsTask& task) {
  const int num_whole = task.cols / task.group;
  const float* x = task.x;
  int8_t* values = task.values;
  for (int i = 0; i < num_whole; ++i, x += task.group, values += task.group) {
    if (task.group == 128) {
      QuantizeGroupInRegisters<128 / kLanes>(x, values, &task.headers[i]);
    } else if (task.group == 64) {
      QuantizeGroupInRegisters<64 / kLanes>(x, values, &task.headers[i]);
    } else {
      QuantizeGroupInRegisters<32 / kLanes>(x, values, &task.headers[i]);
    }
  }
  const int done = num_whole * task.group;
  if (done == task.cols) return;
  QuantizeGroups(
      {.x = x, .cols = task.cols - done, .group = task.group, .headers = task.headers + num_whole, .values = values});
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_QUANTIZE_GROUPS_AVX512_H_
