// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_REFERENCE_QUANTIZED_H_
#define QUIRE_KERNELS_REFERENCE_QUANTIZED_H_

#include <cstdint>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/half_float.h"

// The formula of products by whole numbers, one element at a time. Tests compare bits with it.
namespace quire::reference {

struct QuantizedRow {
  std::vector<int> values;  // In [-127, 127].
  float scale;
};

// Rounds a row as the kernels round their input.
QuantizedRow Quantize(const float* x, int cols);

// y[num_tokens, rows] = x * w^T, where row n of w is values[n] * scales[n].
std::vector<float> QuantizedLinear(const std::vector<float>& x, const std::vector<int8_t>& values,
                                   const std::vector<float>& scales, int cols);

// A matrix of 4 bits: the weight of row n and column k is (values[n][k] - zeros[n][k / group]) * scales[n][k / group].
struct Int4Matrix {
  std::vector<int8_t> values;
  std::vector<float> scales;
  std::vector<uint8_t> zeros;
  int rows;
  int cols;
  int group;
  int num_slices = 1;

  int num_groups() const { return (cols + group - 1) / group; }
};

// y[num_tokens, rows] = x * w^T, where each group of x is rounded.
std::vector<float> Int4Linear(const std::vector<float>& x, const Int4Matrix& w);
// The same with x as it is. Products are added with one rounding (fused) or with two.
std::vector<float> Int4FloatLinear(const std::vector<float>& x, const Int4Matrix& w, bool is_fused);

// The weights as numbers of bfloat16, each rounded from (value - zero) * scale in float32.
std::vector<BFloat16> Int4AsBFloat16(const Int4Matrix& w);

// The number that a byte of FP8 (E4M3) represents. The bytes 0x7f and 0xff are no numbers.
float Fp8Value(uint8_t bits);

// A matrix of FP8: the weight of row n and column k is values[n][k] * scales[n][k / group].
struct Fp8Matrix {
  std::vector<int8_t> values;  // The bits of the numbers.
  std::vector<float> scales;
  int rows;
  int cols;
  int group;
  int num_slices = 1;

  int num_groups() const { return (cols + group - 1) / group; }
};

// y[num_tokens, rows] = x * w^T, where the products of a column and of a group's sum are added with one rounding
// (fused) or with two.
std::vector<float> Fp8Linear(const std::vector<float>& x, const Fp8Matrix& w, bool is_fused);

// A matrix in blocks (kernels/blocks.h).
struct BlockMatrix {
  BlockType type;
  std::vector<uint8_t> blocks;
  int rows;
  int cols;
  int num_slices = 1;
  // These are read from the blocks.
  int group = 0;
  std::vector<int8_t> numbers = {};    // [rows, cols]
  std::vector<float> scales = {};      // [rows, cols / columns of a block]
  std::vector<float> minima = {};      // The same, or empty.
  std::vector<int> small_scales = {};  // [rows, cols / group]
  std::vector<int> small_minima = {};  // The same, or empty.

  int num_groups() const { return cols / group; }
  // The weight of a row and a column.
  float Weight(int row, int col) const;
};
// Reads the numbers, scales and minima.
void ReadBlocks(BlockMatrix* w);

// y[num_tokens, rows] = x * w^T, where x is rounded with a scale for each block.
std::vector<float> BlockLinear(const std::vector<float>& x, const BlockMatrix& w);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_QUANTIZED_H_
