// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROUNDED_PRODUCTS_H_
#define QUIRE_KERNELS_CUDA_ROUNDED_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "kernels/backend_status.h"
#include "kernels/cuda/byte_matrix.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/product_splits.h"

namespace quire::cuda {

// Products by matrices of int8 or FP8 whose input is rounded to the same kind of numbers (W8A8), with a scale for each
// token, or for each 128 columns of a token if the weights have scales of blocks. A kernel rounds the rows of x first
// (round_rows.h). A few tokens are multiplied by rounded_product.h, and more tokens by the device's library.
//
// In int8 the library adds the products of whole numbers, and scale_sums.h scales the sums. All sums are exact, so a
// row of the result has the same bits in both ways, whatever the other rows are, and they equal the bits on a CPU with
// the same row of x. In FP8 the library also scales the sums. Their last bits depend on the way and on the number of
// tokens.
//
// With scales of blocks, the library multiplies multiples of four tokens. If y has no room for such a number, the
// products are copied to it if they have room elsewhere; otherwise the last one to three tokens are multiplied apart.
// Used by one thread.
class RoundedProducts {
 public:
  // The most tokens that rounded_product.h takes, if the library has such products.
  static constexpr int kMostInt8Tokens = 32;
  static constexpr int kMostFp8Tokens = 64;
  // The sums of the library in int8, 4 bytes for each, take at most this memory, or the memory of 16 columns if that is
  // more. So do the products in blocks that are copied.
  static constexpr size_t kSumBytes = size_t{32} << 20;
  static constexpr int kMostTokensAtOnce = 2048;  // Limit of such a product of the library.

  // The kernels must outlive it, and so must the device. `sum_bytes` and `most_tokens_at_once` limit the products of
  // the library in int8. With `most_few_tokens`, the library gets products of more tokens in both formats.
  RoundedProducts(Device* device, const KernelTable* kernels, DataType element, size_t sum_bytes = kSumBytes,
                  int most_tokens_at_once = kMostTokensAtOnce, std::optional<int> most_few_tokens = std::nullopt);

  // Returns num_tokens, rounded up to a multiple of four.
  static int RowsWithRoom(int num_tokens);
  // Queues y[num_tokens, rows] = x * w^T, or y += that product. x has elements, and y has elements or float32.
  // `has_room` says whether y has RowsWithRoom(num_tokens) rows, of which the last ones may be overwritten.
  void Multiply(const uint16_t* x, const ByteCudaMatrix& w, int num_tokens, void* y, DataType y_type, bool adds_to_y,
                bool has_room = false);

  // The first time for each kind of matrix, multiplies random numbers by the matrix in each of the ways and compares
  // some rows with the formula, in int8 bit by bit. It is computed on the host from the matrices that `w` was packed
  // from. The error names the first wrong element. Waits for the device.
  BackendStatus Check(const ByteCudaMatrix& w, const QuantizedMatrixView* matrices, int num_matrices);

 private:
  // A part of a product: some rounded tokens by some rows of a matrix.
  struct Part {
    QuantizedFormat format;
    bool has_blocks;
    const int8_t* x;         // [num_tokens, depth] numbers of the format; in blocks [x_scale_stride, depth].
    const float* x_scales;   // [num_tokens], or in blocks [depth / 128][x_scale_stride]
    const int8_t* w;         // [padded_rows, depth]
    const float* w_scales;   // [padded_rows], or in blocks [rows / 128, rounded up][w_scale_stride]
    int32_t x_scale_stride;  // In blocks it is num_tokens, rounded up to a multiple of four.
    int32_t w_scale_stride;
    void* y;  // A row begins y_stride after the one before.
    int num_tokens;
    int rows;
    int padded_rows;
    int depth;
    int64_t y_stride;
    bool y_is_float;
    bool adds_to_y;
    bool has_room = false;  // As in Multiply.
  };

  // Rounds x. The rounded rows are valid until the next call.
  Part Rounded(const uint16_t* x, const ByteCudaMatrix& w, int num_tokens, void* y, DataType y_type, bool adds_to_y);
  // Returns some tokens and some rows of the matrix. The rows begin at a multiple of 16. REQUIRES: no blocks.
  static Part PartOf(const Part& whole, int first_token, int num_tokens, int first_row, int rows);
  void MultiplyFew(const Part& part);
  // Leaves to MultiplyFew what the library cannot multiply.
  void MultiplyMany(const Part& whole);
  // Multiplies in parts whose sums have room.
  void MultiplyManyInt8(const Part& whole);
  // Returns how many tokens, a multiple of four, have room in `sums_` for their products by a matrix in blocks.
  int MostCopiedTokens(int rows) const;
  // Multiplies a multiple of four tokens and copies the products to y, unless that has room for them.
  bool MultiplyBlocksByLibrary(const Part& part);
  // The next two functions return false, and queue nothing, if the library has no such product, as does the one above.
  bool MultiplyInt8ByLibrary(const Part& part);
  bool MultiplyFp8ByLibrary(const Part& part);
  // Says once for each kind of matrix in the log that the library has no such product.
  void Complain(const Part& part);
  void ScaleSums(const Part& part, const void* sums, int64_t split_stride, int num_splits);
  const RoundedProductKernels& KernelsFor(QuantizedFormat format, bool has_blocks) const {
    if (has_blocks) return kernels_.rounded_fp8_blocks;
    return format == QuantizedFormat::kFp8 ? kernels_.rounded_fp8 : kernels_.rounded_int8;
  }
  int MostFewTokens(QuantizedFormat format) const {
    return most_few_tokens_.value_or(format == QuantizedFormat::kFp8 ? kMostFp8Tokens : kMostInt8Tokens);
  }

  Device* const device_;
  const KernelTable& kernels_;
  const DataType element_;
  const size_t sum_bytes_;
  const int most_tokens_at_once_;
  const std::optional<int> most_few_tokens_;
  DeviceBuffer rounded_;                          // [tokens, depth]
  DeviceBuffer scales_;                           // [tokens], or in blocks [depth / 128][tokens]
  DeviceBuffer sums_;                             // [splits, tokens, rows] sums of 32 bits
  DeviceBuffer tickets_;                          // [blocks of rows], which are zeros between kernels
  using Kind = std::pair<QuantizedFormat, bool>;  // The format, and whether there are blocks.
  std::set<Kind> checked_;
  std::set<Kind> complained_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROUNDED_PRODUCTS_H_
