// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SCORE_H_
#define QUIRE_KERNELS_CUDA_SCORE_H_

#include <cstdint>
#include <cstring>

#include "kernels/philox.h"
#include "kernels/simt/simt.h"

// Unrolled loops over a row need more registers than a thread of a 1024-thread block has.
#if defined(__CUDACC__)
#define QUIRE_NO_UNROLL _Pragma("unroll 1")
#else
#define QUIRE_NO_UNROLL
#endif

// The numbers of sampling. Scores of tokens become integers that can be compared, added and selected in any order with
// the same result. The noise of a draw is here, too.

namespace quire::cuda {

constexpr float kLargestFloat = 3.4028234663852886e38f;
constexpr float kLog2E = 1.44269504f;

QUIRE_DEVICE uint32_t FloatBits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

QUIRE_DEVICE float BitsToFloat(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

QUIRE_DEVICE float MinusInfinity() {
  return BitsToFloat(0xff800000u);
}

QUIRE_DEVICE bool IsFinite(float x) {
  return (FloatBits(x) & 0x7f800000u) != 0x7f800000u;
}

// --- Order

// The key is larger for larger x and equal for equal x. Adding 0 makes -0 equal to 0.
QUIRE_DEVICE uint32_t OrderKey(float x) {
  const uint32_t bits = FloatBits(x + 0.0f);
  return bits ^ (bits >> 31 != 0 ? 0xffffffffu : 0x80000000u);
}

// A token and its score as one number that is different for every token. It is larger for larger scores, then for
// smaller ids. So "the best k, ties to the lowest ids" is a threshold.
QUIRE_DEVICE uint64_t RankKey(float score, int32_t token) {
  return uint64_t{OrderKey(score)} << 32 | ~static_cast<uint32_t>(token);
}

QUIRE_DEVICE int32_t TokenOf(uint64_t rank_key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank_key));
}

QUIRE_DEVICE float ScoreOf(uint64_t rank_key) {
  const uint32_t key = static_cast<uint32_t>(rank_key >> 32);
  return BitsToFloat(key ^ (key >> 31 != 0 ? 0x80000000u : 0xffffffffu));
}

// No finite score has a smaller key, but -inf, the score of masked tokens, has.
constexpr uint64_t kLowestRankKey = uint64_t{0x00800000u} << 32;

// --- Mass

// exp(score) of a score <= 0 in units of 2^-42. Sums of up to 2^21 tokens fit and do not depend on the order.
constexpr float kMassUnits = 4398046511104.0f;

QUIRE_DEVICE uint64_t Mass(float score) {
  return static_cast<uint64_t>(simt::Exp2(score * kLog2E) * kMassUnits);
}

// Computes ln x for normal x > 0, with the same operations as Log of cpu/vector_math.h.
QUIRE_DEVICE float Log(float x) {
  const int32_t bits = static_cast<int32_t>(FloatBits(x));
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const float m = BitsToFloat(static_cast<uint32_t>(bits) - (static_cast<uint32_t>(exponent) << 23));
  const float e = static_cast<float>(exponent), r = m - 1.0f;
  float p = -0.07634496688842773f;
  p = __builtin_fmaf(p, r, 0.1276157647371292f);
  p = __builtin_fmaf(p, r, -0.13160182535648346f);
  p = __builtin_fmaf(p, r, 0.14201757311820984f);
  p = __builtin_fmaf(p, r, -0.16623356938362122f);
  p = __builtin_fmaf(p, r, 0.20001226663589478f);
  p = __builtin_fmaf(p, r, -0.2500081956386566f);
  p = __builtin_fmaf(p, r, 0.3333333134651184f);
  const float r2 = r * r;
  float tail = __builtin_fmaf(r2 * r, p, e * -2.12194440e-4f);
  tail = __builtin_fmaf(r2, -0.5f, tail);
  return __builtin_fmaf(e, 0.693359375f, r + tail);
}

// Computes ln of a sum of masses, which is at least 1. With sum = f + d, f in float32, it is ln f + d / f.
QUIRE_DEVICE double LogOfMass(uint64_t mass) {
  const double sum = static_cast<double>(mass) / static_cast<double>(kMassUnits);
  const float f = static_cast<float>(sum);
  const int32_t exponent = (static_cast<int32_t>(FloatBits(f)) - 0x3f3504f3) >> 23;
  const float m = BitsToFloat(FloatBits(f) - (static_cast<uint32_t>(exponent) << 23));
  const float d = static_cast<float>(sum - static_cast<double>(f));
  return exponent * 0.693147180559945309 + static_cast<double>(Log(m)) + static_cast<double>(d * simt::Reciprocal(f));
}

// --- Noise

// (word + 1/2) / 2^32, below 1.
QUIRE_DEVICE float Uniform(uint32_t word) {
  const float u = (static_cast<float>(word) + 0.5f) * 2.3283064365386963e-10f;
  return u < 0.99999994f ? u : 0.99999994f;
}

// Computes -ln(-ln(1 - u)) with the same bits as cpu/sampling_kernel.h.
QUIRE_DEVICE float GumbelNoise(float u) {
  const float w = 1.0f - u;
  return -Log(((w - 1.0f) + u) / w - Log(w));
}

QUIRE_DEVICE PhiloxBlock DrawWords(uint64_t seed, uint32_t position, int32_t token) {
  return Philox4x32({{position, 0, static_cast<uint32_t>(token) / 4, 0}}, seed);
}

// --- Rows of scores

// The scores of four consecutive tokens.
struct Scores4 {
  float x[4];
};

// The scores of a row: ((x - high) - low) / divisor, finite where x is finite. Masked tokens are -inf and stay -inf.
struct ScoreRow {
  const float* x;  // [size]
  int32_t size;
  float high, low, divisor;

  static QUIRE_DEVICE ScoreRow Raw(const float* x, int32_t size) { return {x, size, 0, 0, 1}; }

  QUIRE_DEVICE float Score(float value) const {
    float score = (value - high) - low;
    if (divisor != 1) score /= divisor;
    return value < -kLargestFloat || score >= -kLargestFloat ? score : -kLargestFloat;
  }
  // Loads four raw values from `first` on, a multiple of 4. Values behind the end are -inf.
  QUIRE_DEVICE Scores4 Load(int32_t first) const {
    Scores4 result;
    if (reinterpret_cast<uintptr_t>(x) % 16 == 0 && first + 4 <= size) {
      const simt::U32x4 words = simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(x + first));
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) result.x[i] = BitsToFloat(words.word[i]);
    } else {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        result.x[i] = first + i < size ? simt::LoadGlobal(x + first + i) : MinusInfinity();
      }
    }
    return result;
  }
};

// Calls visit(first token, its four values) for the whole row. Each thread of the block visits its own part in
// ascending order, and loads kLoads groups of four at once.
template <int kThreads, int kLoads = 1, typename Visit>
QUIRE_DEVICE void ForEachFour(const ScoreRow& row, const Visit& visit) {
  constexpr int kStride = 4 * kThreads;
  QUIRE_NO_UNROLL for (int32_t first = 4 * simt::ThreadIndex(); first < row.size; first += kLoads * kStride) {
    Scores4 values[kLoads];
    QUIRE_UNROLL for (int i = 0; i < kLoads; ++i) values[i] = row.Load(first + i * kStride);
    QUIRE_UNROLL for (int i = 0; i < kLoads; ++i) visit(first + i * kStride, values[i]);
  }
}

// Calls visit(token, score) for every token that is not masked.
template <int kThreads, typename Visit>
QUIRE_DEVICE void ForEachScore(const ScoreRow& row, const Visit& visit) {
  ForEachFour<kThreads>(row, [&](int32_t first, const Scores4& values) {
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
      if (values.x[i] >= -kLargestFloat) visit(first + i, row.Score(values.x[i]));
    }
  });
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SCORE_H_
