// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_KERNEL_H_
#define QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_KERNEL_H_

#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/isa/vector_math.h"
#include "kernels/cpu/sampling/sampling_task.h"
#include "kernels/philox.h"

// Kernels that pass over a row of logits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kScanChunk = 64;

// Loads the first n lanes from p and puts `fill` into the others.
QUIRE_INLINE Vec LoadOr(const float* p, int n, Vec fill) {
  return n == kLanes ? Load(p) : Select((1u << n) - 1, fill, LoadFirst(p, n));
}

inline RowExtremes Extremes(const float* x, int n) {
  // x - x is 0 for finite x and NaN otherwise, so one sum detects any infinity or NaN.
  Vec largest = Set(-__builtin_inff()), poison = Zero();
  for (int i = 0; i < n; i += kLanes) {
    const Vec v = LoadOr(x + i, Min(kLanes, n - i), Set(-3.4028234e38f));
    largest = Max(largest, v);
    poison = Add(poison, Sub(v, v));
  }
  RowExtremes result = {ReduceMax(largest), 0, ReduceAdd(poison) == 0};
  const Vec max = Set(result.max);
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    const uint32_t equal = Equal(LoadFirst(x + i, lanes), max) & ((1u << lanes) - 1);
    if (equal == 0) continue;
    result.argmax = i + __builtin_ctz(equal);
    break;
  }
  return result;
}

inline void ChunkMax(const float* x, int n, float* chunk_max) {
  for (int start = 0; start < n; start += kScanChunk) {
    Vec largest = Set(-__builtin_inff());
    const int end = Min(n, start + kScanChunk);
    for (int i = start; i < end; i += kLanes) {
      largest = Max(largest, LoadOr(x + i, Min(kLanes, end - i), Set(-__builtin_inff())));
    }
    chunk_max[start / kScanChunk] = ReduceMax(largest);
  }
}

inline double SumExp(const float* x, int n, float max) {
  double total = 0;
  for (int start = 0; start < n; start += kScanChunk) {
    Vec sum = Zero();
    const int end = Min(n, start + kScanChunk);
    for (int i = start; i < end; i += kLanes) {
      const Vec v = LoadOr(x + i, Min(kLanes, end - i), Set(-__builtin_inff()));
      sum = Add(sum, Exp(Sub(v, Set(max))));
    }
    total += ReduceAdd(sum);
  }
  return total;
}

inline void ExpRow(const float* x, int n, float* w) {
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    StoreFirst(w + i, lanes, Exp(LoadFirst(x + i, lanes)));
  }
}

inline int Collect(const float* x, int n, float threshold, int32_t* indices) {
  int count = 0;
  const Vec limit = Set(threshold);
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    uint32_t mask = GreaterEqual(LoadFirst(x + i, lanes), limit) & ((1u << lanes) - 1);
    for (; mask != 0; mask &= mask - 1) indices[count++] = i + __builtin_ctz(mask);
  }
  return count;
}

inline int Rank(const float* x, int n, int index) {
  const Vec value = Set(x[index]);
  int before = 0;
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    const Vec v = LoadFirst(x + i, lanes);
    uint32_t mask = Greater(v, value);
    if (i <= index) mask |= Equal(v, value) & (index - i < kLanes ? (1u << (index - i)) - 1 : ~0u);
    before += __builtin_popcount(mask & ((1u << lanes) - 1));
  }
  return before + 1;
}

inline void Subtract(const float* x, int n, float high, float low, float* y) {
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    const Vec difference = Sub(Sub(LoadFirst(x + i, lanes), Set(high)), Set(low));
    StoreFirst(y + i, lanes, Max(difference, Set(-3.4028234e38f)));
  }
}

inline void ScaleScores(const float* x, int n, float max, float temperature, float* y) {
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    StoreFirst(y + i, lanes, Div(Sub(LoadFirst(x + i, lanes), Set(max)), Set(temperature)));
  }
}

// --- Gumbel-max ---

// u = (word + 1/2) / 2^32, below 1.
QUIRE_INLINE Vec Uniform(UVec words) {
  return Min(Mul(Add(ToFloats(words), Set(0.5f)), Set(0x1p-32f)), Set(1 - 0x1p-24f));
}

// Standard Gumbel noise -ln(-ln(1 - u)). The large values, which decide the draw, come from small u, where float32 has
// a fine resolution. If w is 1 - u rounded, ln(1 - u) is ln w + (1 - u - w) / w to the last digit.
QUIRE_INLINE Vec GumbelNoise(Vec u) {
  const Vec one = Set(1.0f);
  const Vec w = Sub(one, u);
  const Vec rate = Sub(Div(Add(Sub(w, one), u), w), Log(w));
  return Sub(Zero(), Log(rate));
}

// Computes the random words of 64 consecutive tokens, the first of which is a multiple of 4: 16 Philox counters side by
// side. This is Philox4x32 of kernels/philox.h on vectors. Returns false, without the words, if none of them gives a u
// of at most `limit`.
inline bool DrawConsecutiveWords(const GumbelTask& task, uint32_t first, Vec limit, uint32_t* words) {
  UVec c0 = SetU(task.position), c1 = SetU(0), c2 = CountFrom(first / 4), c3 = SetU(0);
  PhiloxKey key = MakePhiloxKey(task.seed);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    UVec high0, low0, high2, low2;
    MultiplyWide(c0, kPhiloxMultiplier0, &high0, &low0);
    MultiplyWide(c2, kPhiloxMultiplier2, &high2, &low2);
    c0 = Xor(Xor(high2, c1), SetU(key.word[0]));
    c1 = low2;
    c2 = Xor(Xor(high0, c3), SetU(key.word[1]));
    c3 = low0;
    key = NextPhiloxKey(key);
  }
  const Vec least = Min(Min(Uniform(c0), Uniform(c1)), Min(Uniform(c2), Uniform(c3)));
  if (GreaterEqual(limit, least) == 0) return false;
  uint32_t by_word[4][kLanes];
  StoreU(by_word[0], c0);
  StoreU(by_word[1], c1);
  StoreU(by_word[2], c2);
  StoreU(by_word[3], c3);
  for (int i = 0; i < kScanChunk; ++i) words[i] = by_word[i % 4][i / 4];
  return true;
}

// Computes the random words of the `count` <= 64 listed tokens from entry `first` on. `words` has room for 64.
inline void DrawListedWords(const GumbelTask& task, int first, int count, uint32_t* words) {
  for (int i = 0; i < count; ++i) {
    const uint32_t token = uint32_t(task.tokens[first + i]);
    words[i] = Philox4x32({{task.position, 0, token / 4, 0}}, task.seed).word[token % 4];
  }
}

struct GumbelBest {
  float score = -__builtin_inff();
  int index = 0;
};

// Updates `best` with the 64 entries from `first` on; `first` is a multiple of 64. A token wins only if its noise is
// above best - score, and its noise is at most -ln u. Therefore tokens with a too large u are skipped before any
// logarithm.
inline void DrawChunk(const GumbelTask& task, int first, GumbelBest* best) {
  const int count = Min(kScanChunk, task.count - first);
  const float* scores = task.scores + first;
  Vec largest = Set(-__builtin_inff());
  for (int i = 0; i < count; i += kLanes) {
    largest = Max(largest, LoadOr(scores + i, Min(kLanes, count - i), Set(-__builtin_inff())));
  }
  // The factor covers all rounding errors.
  const Vec limit = Mul(Exp(Sub(Set(ReduceMax(largest)), Set(best->score))), Set(1.001f));
  if (Greater(limit, Zero()) == 0) return;
  uint32_t words[kScanChunk] = {};
  if (task.tokens != nullptr) {
    DrawListedWords(task, first, count, words);
  } else if (!DrawConsecutiveWords(task, uint32_t(first), limit, words)) {
    return;
  }
  for (int i = 0; i < count; i += kLanes) {
    const Vec u = Uniform(LoadU(words + i));
    if (GreaterEqual(limit, u) == 0) continue;
    const Vec noisy = Add(LoadOr(scores + i, Min(kLanes, count - i), Set(-__builtin_inff())), GumbelNoise(u));
    const float winner = ReduceMax(noisy);
    const int index = first + i + __builtin_ctz(Equal(noisy, Set(winner)));
    if (winner > best->score || (winner == best->score && index < best->index)) *best = {winner, index};
  }
}

// The scan starts at the chunk with the largest score, so that most other chunks can be skipped.
inline int GumbelArgmax(const GumbelTask& task) {
  GumbelBest best;
  const int start = task.best_score / kScanChunk * kScanChunk;
  DrawChunk(task, start, &best);
  for (int first = 0; first < task.count; first += kScanChunk) {
    if (first != start) DrawChunk(task, first, &best);
  }
  return best.index;
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_KERNEL_H_
