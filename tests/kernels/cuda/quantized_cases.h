// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_QUANTIZED_CASES_H_
#define QUIRE_TESTS_KERNELS_CUDA_QUANTIZED_CASES_H_

#include <cstdint>
#include <vector>

#include "kernels/linear.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {

// A quantized matrix of random numbers, which knows its weights by the formula of packed_weights.h.
struct QuantizedCase {
  // The values go through all that the format has.
  QuantizedCase(QuantizedFormat matrix_format, int num_rows, int num_cols, int group_cols, uint64_t seed);

  // Returns a matrix of FP8 whose blocks of 128 x 128 share a scale. The last blocks may be cut off.
  static QuantizedCase InBlocks(int num_rows, int num_cols, uint64_t seed);

  // Returns the view of some rows.
  QuantizedMatrixView View(int first_row, int num_rows) const;
  QuantizedMatrixView View() const { return View(0, rows); }
  // Returns value - zero, and the scale.
  float Number(int row, int col) const;
  float Scale(int row, int col) const;
  // Returns [rows, cols] without the order of columns: the number times the scale, exact or rounded to the type.
  std::vector<double> Weights() const;
  std::vector<double> RoundedWeights(DataType element) const;

  int NumGroups() const { return HasGroups(format) ? (cols + group - 1) / group : 1; }

  QuantizedFormat format;
  int rows, cols, group;
  bool has_blocks = false;
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
};

const char* Name(QuantizedFormat format);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_QUANTIZED_CASES_H_
