#ifndef QUIRE_KERNELS_CPU_SAMPLING_KERNEL_H_
#define QUIRE_KERNELS_CPU_SAMPLING_KERNEL_H_

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/vector_math.h"
#include "kernels/philox.h"

// Passes over a row of logits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kScanChunk = 64;

// The first n lanes of p, `fill` in the others.
QUIRE_INLINE Vec LoadOr(const float* p, int n, Vec fill) {
  return n == kLanes ? Load(p) : Select((1u << n) - 1, fill, LoadFirst(p, n));
}

inline RowExtremes Extremes(const float* x, int n) {
  // x - x is 0 for finite x and NaN otherwise, so one sum remembers any infinity or NaN.
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

inline void ScaleScores(const float* x, int n, float max, float temperature, float* y) {
  for (int i = 0; i < n; i += kLanes) {
    const int lanes = Min(kLanes, n - i);
    StoreFirst(y + i, lanes, Div(Sub(LoadFirst(x + i, lanes), Set(max)), Set(temperature)));
  }
}

// --- Gumbel-max ---

// No noise is larger: -ln of the smallest -ln(1 - u).
constexpr float kMaxNoise = 22.9f;

// Standard Gumbel noise -ln(-ln(1 - u)) for u = (word + 1/2) / 2^32. The large values, which decide, come from small u,
// where float32 is fine-grained. With w = 1 - u rounded, ln(1 - u) is ln w + (1 - u - w) / w to the last digit.
QUIRE_INLINE Vec GumbelNoise(const uint32_t* words) {
  float lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = (float(words[i]) + 0.5f) * 0x1p-32f;
  const Vec u = Min(Load(lanes), Set(1 - 0x1p-24f));
  const Vec one = Set(1.0f);
  const Vec w = Sub(one, u);
  const Vec rate = Sub(Div(Add(Sub(w, one), u), w), Log(w));
  return Sub(Zero(), Log(rate));
}

QUIRE_INLINE PhiloxBlock CounterOf(const GumbelTask& task, int32_t token) {
  return {{task.position, task.sample_index, uint32_t(token) / 4, 0}};
}

// The random words of `count` <= 64 tokens starting at entry `first`.
inline void DrawWords(const GumbelTask& task, int first, int count, uint32_t* words) {
  if (task.tokens == nullptr) {
    for (int i = 0; i < count; i += 4) {
      const PhiloxBlock block = Philox4x32(CounterOf(task, first + i), task.seed);
      for (int j = 0; j < 4; ++j) words[i + j] = block.word[j];
    }
    return;
  }
  for (int i = 0; i < count; ++i) {
    const int32_t token = task.tokens[first + i];
    words[i] = Philox4x32(CounterOf(task, token), task.seed).word[token % 4];
  }
}

struct GumbelBest {
  float score = -__builtin_inff();
  int index = 0;
};

// Brings `best` up to date with the 64 entries from `first` on, a multiple of 64.
inline void DrawChunk(const GumbelTask& task, int first, GumbelBest* best) {
  const int count = Min(kScanChunk, task.count - first);
  const float* scores = task.scores + first;
  uint32_t rivals = 0;
  for (int i = 0; i < count; i += kLanes) {
    const Vec v = LoadOr(scores + i, Min(kLanes, count - i), Set(-__builtin_inff()));
    rivals |= Greater(Add(v, Set(kMaxNoise)), Set(best->score));
  }
  if (rivals == 0) return;
  uint32_t words[kScanChunk] = {};
  DrawWords(task, first, count, words);
  for (int i = 0; i < count; i += kLanes) {
    const Vec v = LoadOr(scores + i, Min(kLanes, count - i), Set(-__builtin_inff()));
    const Vec noisy = Add(v, GumbelNoise(words + i));
    const float largest = ReduceMax(noisy);
    const int index = first + i + __builtin_ctz(Equal(noisy, Set(largest)));
    if (largest > best->score || (largest == best->score && index < best->index)) *best = {largest, index};
  }
}

// A chunk whose scores cannot win even with the largest noise is passed over; starting where the largest score is makes
// that most of them.
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

#endif  // QUIRE_KERNELS_CPU_SAMPLING_KERNEL_H_
