// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GPTQ_ZEROS_H_
#define QUIRE_WORKER_MODEL_GPTQ_ZEROS_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace quire {

// The numbers of a matrix in a checkpoint of GPTQ, and the words of its zero points.
struct GptqNumbers {
  const std::vector<int8_t>& values;  // [rows, cols], the bits of numbers without sign.
  std::string_view zeros;             // Words [groups, rows / n]; see packed_numbers.h.
  int bits;
  int rows;
  int cols;
  int group;  // Columns that share a zero point.
};

// Returns what was subtracted from the zero points of weights that are not symmetric: 1 in version 1 of the format, 0
// in version 2. Any words are possible in both versions, so only the weights can tell: their mean is nearly 0, and a
// zero point that is wrong by 1 moves it by a whole step. Returns nothing when the mean does not tell: the matrix is
// small (fewer than about 4,000 numbers of 4 bits, or 500,000 of 8 bits), or no version makes the mean less than a
// quarter of a step.
std::optional<int> GptqZerosStoredLess(const GptqNumbers& numbers);

// Returns whether all zero points belong to symmetric weights, in version 1 or in version 2 of the format.
bool AreSymmetricGptqZeros(const GptqNumbers& numbers);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GPTQ_ZEROS_H_
