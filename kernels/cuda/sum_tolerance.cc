// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/sum_tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace quire::cuda {
namespace {

constexpr size_t kStep = 32;       // Columns of a step of the tensor cores.
constexpr size_t kFp8Block = 128;  // Columns whose products of FP8 the tensor cores add.

// Bounds the partial sums of numbers that are added step by step, in any order within a step.
class PartialSums {
 public:
  void AddStep(const double* numbers, size_t count) {
    double positive = 0, negative = 0;
    for (size_t i = 0; i < count; ++i) (numbers[i] > 0 ? positive : negative) += numbers[i];
    highest_ = std::max(highest_, sum_ + positive);
    lowest_ = std::min(lowest_, sum_ + negative);
    sum_ += positive + negative;
  }

  // Returns at least the magnitude of each number and of each sum of consecutive ones, wherever it begins.
  double Largest() const { return highest_ - lowest_; }

 private:
  double sum_ = 0, lowest_ = 0, highest_ = 0;
};

}  // namespace

double Float32SumTolerance(const std::vector<double>& products, int group) {
  constexpr double kCutOff = 0x1p-23;
  PartialSums of_all, of_group;
  double tolerance = 0;
  for (size_t first = 0; first < products.size(); first += kStep) {
    const size_t count = std::min(kStep, products.size() - first);
    if (first % size_t(group) == 0) of_group = {};
    of_group.AddStep(&products[first], count);
    of_all.AddStep(&products[first], count);
    tolerance += kCutOff * double(count + 1) * of_group.Largest() + kFloat32Roundoff * of_all.Largest();
  }
  return tolerance;
}

double Fp8SumTolerance(const std::vector<double>& products) {
  constexpr double kCutOff = 0x1p-13;
  PartialSums of_blocks;
  double tolerance = 0;
  for (size_t block = 0; block < products.size(); block += kFp8Block) {
    const size_t block_end = std::min(block + kFp8Block, products.size());
    double sum = 0;
    for (size_t first = block; first < block_end; first += kStep) {
      const size_t end = std::min(first + kStep, block_end);
      const size_t num_addends = end - first + (first == block ? 0 : 1);
      double largest = std::fabs(sum);
      for (size_t k = first; k < end; ++k) {
        largest = std::max(largest, std::fabs(products[k]));
        sum += products[k];
      }
      tolerance += kCutOff * double(num_addends) * largest;
    }
    of_blocks.AddStep(&sum, 1);
    tolerance += 2 * kFloat32Roundoff * std::fabs(sum);
    if (block > 0) tolerance += kFloat32Roundoff * of_blocks.Largest();
  }
  return tolerance;
}

}  // namespace quire::cuda
