// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_TASK_H_
#define QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_TASK_H_

#include <cstdint>

namespace quire::cpu {

// Draws with the Gumbel-max trick. The result is the index i of the largest scores[i] + g(i), ties to the lowest index,
// where g(i) is the noise of token i. Scores are at most 0.
struct GumbelTask {
  const float* scores;    // [count]
  const int32_t* tokens;  // [count] ascending; null means that entry i is token i.
  int count;
  int best_score;  // Index of the largest score.
  uint64_t seed;
  uint32_t position;
};

struct RowExtremes {
  float max;
  int32_t argmax;  // Lowest index of the maximum; 0 when there is a NaN.
  bool is_finite;  // Whether there is neither an infinity nor a NaN.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_SAMPLING_SAMPLING_TASK_H_
