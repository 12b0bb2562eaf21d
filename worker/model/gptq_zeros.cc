// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gptq_zeros.h"

#include <algorithm>
#include <cmath>

#include "worker/model/packed_numbers.h"

namespace quire {
namespace {

// It is in steps between neighbouring numbers.
constexpr double kLargestMean = 0.25;
constexpr double kLargestStandardError = kLargestMean / 4;

int NumGroups(const GptqNumbers& numbers) {
  return (numbers.cols + numbers.group - 1) / numbers.group;
}

std::vector<uint8_t> Zeros(const GptqNumbers& numbers, int stored_less) {
  const int groups = NumGroups(numbers);
  std::vector<uint8_t> zeros(static_cast<size_t>(groups) * numbers.rows);
  UnpackGptqZeros(numbers.zeros, numbers.bits, numbers.rows, groups, stored_less, zeros.data());
  return zeros;
}

// The mean of the zero points of all numbers.
double MeanZero(const GptqNumbers& numbers, int stored_less) {
  const std::vector<uint8_t> zeros = Zeros(numbers, stored_less);
  double sum = 0;
  for (size_t i = 0; i < zeros.size(); ++i) {
    const int first = static_cast<int>(i / numbers.rows) * numbers.group;
    sum += static_cast<double>(zeros[i]) * std::min(numbers.group, numbers.cols - first);
  }
  return sum / static_cast<double>(numbers.values.size());
}

}  // namespace

std::optional<int> GptqZerosStoredLess(const GptqNumbers& numbers) {
  const auto count = static_cast<double>(numbers.values.size());
  double sum = 0, squares = 0;
  for (const int8_t value : numbers.values) {
    const double number = static_cast<uint8_t>(value);
    sum += number;
    squares += number * number;
  }
  const double mean = sum / count;
  const double standard_error = std::sqrt(std::max(0.0, squares / count - mean * mean) / count);
  if (standard_error > kLargestStandardError) return std::nullopt;
  const bool can_be_0 = std::abs(mean - MeanZero(numbers, 0)) <= kLargestMean;
  const bool can_be_1 = std::abs(mean - MeanZero(numbers, 1)) <= kLargestMean;
  if (can_be_0 == can_be_1) return std::nullopt;
  return can_be_1 ? 1 : 0;
}

bool AreSymmetricGptqZeros(const GptqNumbers& numbers) {
  const std::vector<uint8_t> zeros = Zeros(numbers, /*stored_less=*/0);
  const int first = zeros.front(), middle = MiddleNumber(numbers.bits);
  return (first == middle || first == middle - 1) &&
         std::all_of(zeros.begin(), zeros.end(), [&](uint8_t zero) { return zero == first; });
}

}  // namespace quire
