// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_INT8_PRODUCTS_H_
#define QUIRE_KERNELS_CUDA_INT8_PRODUCTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend_status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/int8_matrix.h"
#include "kernels/cuda/product_splits.h"

namespace quire::cuda {

// Products by matrices of int8 whose input is rounded to 8 bits, with a scale for each token (W8A8). A kernel rounds
// the rows of x first (round_rows.h). A few tokens are multiplied by int8_product.h. For more tokens, the device's
// library adds the products of whole numbers, and scale_sums.h scales the sums. All sums are exact, so a row of the
// result has the same bits in both ways, whatever the other rows are, and they are those of a CPU with the same row of
// x. Used by one thread.
class Int8Products {
 public:
  static constexpr int kMostTokens = 64;  // That int8_product.h takes, if the library has products of whole numbers.
  // The sums of the library, 4 bytes for each, take at most this memory, or that of 16 columns if these need more.
  static constexpr size_t kSumBytes = size_t{32} << 20;
  static constexpr int kMostTokensAtOnce = 2048;  // Of a product of the library.

  // The kernels must outlive it, and so must the device. `sum_bytes` and `most_tokens_at_once` limit the products of
  // the library, which gets those of more than `most_few_tokens` tokens.
  Int8Products(Device* device, const KernelTable* kernels, DataType element, size_t sum_bytes = kSumBytes,
               int most_tokens_at_once = kMostTokensAtOnce, int most_few_tokens = kMostTokens);

  // Queues y[num_tokens, rows] = x * w^T, or y += that product. x has elements, and y has elements or float32.
  void Multiply(const uint16_t* x, const Int8CudaMatrix& w, int num_tokens, void* y, DataType y_type, bool adds_to_y);

  // The first time, multiplies random numbers by the matrix in each of the ways and compares some rows with the
  // formula, bit by bit. It is computed on the host from the matrices that `w` was packed from. The error names the
  // first wrong element. Waits for the device.
  BackendStatus Check(const Int8CudaMatrix& w, const QuantizedMatrixView* matrices, int num_matrices);

 private:
  // A part of a product: some rounded tokens by some rows of a matrix.
  struct Part {
    const int8_t* x;        // [num_tokens, depth]
    const float* x_scales;  // [num_tokens]
    const int8_t* w;        // [padded_rows, depth]
    const float* w_scales;  // [padded_rows]
    void* y;                // A row begins y_stride after the one before.
    int num_tokens;
    int rows;
    int padded_rows;
    int depth;
    int64_t y_stride;
    bool y_is_float;
    bool adds_to_y;
  };

  // Rounds x. The rounded rows are valid until the next call.
  Part Rounded(const uint16_t* x, const Int8CudaMatrix& w, int num_tokens, void* y, DataType y_type, bool adds_to_y);
  // Returns some tokens and some rows of the matrix. The rows begin at a multiple of 16.
  static Part PartOf(const Part& whole, int first_token, int num_tokens, int first_row, int rows);
  void MultiplyFew(const Part& part);
  // Multiplies in parts whose sums have room. What the library cannot multiply is left to MultiplyFew.
  void MultiplyMany(const Part& whole);
  // Returns false, and queues nothing, if the library has no such product.
  bool MultiplyByLibrary(const Part& part);
  void ScaleSums(const Part& part, const int32_t* sums, int64_t split_stride, int num_splits);

  Device* const device_;
  const KernelTable& kernels_;
  const DataType element_;
  const size_t sum_bytes_;
  const int most_tokens_at_once_;
  const int most_few_tokens_;
  DeviceBuffer rounded_;  // [tokens, depth]
  DeviceBuffer scales_;   // [tokens]
  DeviceBuffer sums_;     // [splits, tokens, rows] whole numbers of 32 bits
  DeviceBuffer tickets_;  // [blocks of rows], which are zeros between kernels
  bool is_checked_ = false;
  bool has_complained_ = false;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_INT8_PRODUCTS_H_
