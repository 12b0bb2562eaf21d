// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCTS_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <set>

#include "kernels/backend_status.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/quantized_matrix.h"

namespace quire::cuda {

// Products by quantized matrices whose inputs are not rounded (W4A16, W8A16). A few tokens are multiplied by
// quantized_product.h, which reads the quantized numbers and does not round weights. For more tokens, the rows of the
// matrix are made 16-bit floats in slices (dequantize.h), and the device multiplies each slice. So the bits of a row
// depend on the number of tokens. When exact, all tokens go to the first kernels, kMostTokens at a time; then a row of
// the result depends on its row of x, the matrix and the number of multiprocessors alone. Used by one thread.
class QuantizedProducts {
 public:
  static constexpr int kMostTokens = 64;  // Limit of a thread block.
  // Up to this number of tokens, the four products of a layer of a model of 8 B parameters are together faster without
  // dequantized slices: with 256 tokens on an H100, 374 us instead of 397 in int4, and 371 instead of 441 in int8.
  static constexpr int kMostPackedTokens = 256;
  // A slice of this size stays in the second cache of large GPUs until it is multiplied.
  static constexpr size_t kSliceBytes = size_t{32} << 20;

  // The kernels must outlive it, and so must the device. Unless exact, more tokens than `most_packed` are multiplied by
  // dequantized slices of at most `slice_bytes` bytes.
  QuantizedProducts(Device* device, const KernelTable* kernels, DataType element, bool exact, size_t slice_bytes,
                    int most_packed);

  // Queues y[num_tokens, rows] = x * w^T, or y += that product. x has elements, and y has elements or float32.
  void Multiply(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y, DataType y_type,
                bool adds_to_y);

  // The first time for each kernel, multiplies random numbers by the matrix and compares some rows with the formulas of
  // quantized_product.h and dequantize.h, computed on the host from the matrices that `w` was packed from. The error
  // names the first wrong element. Waits for the device.
  BackendStatus Check(const QuantizedCudaMatrix& w, const QuantizedMatrixView* matrices, int num_matrices);

 private:
  const QuantizedKernels& KernelsFor(QuantizedFormat format) const;
  void MultiplyPacked(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y, DataType y_type,
                      bool adds_to_y);
  void MultiplyDequantized(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y, DataType y_type,
                           bool adds_to_y);
  // Puts the columns of x into the order of the columns of w.
  const uint16_t* InOrderOf(const QuantizedCudaMatrix& w, const uint16_t* x, int num_tokens);

  Device* const device_;
  const KernelTable& kernels_;
  const DataType element_;
  const bool exact_;
  const size_t slice_bytes_;
  const int most_packed_;
  DeviceBuffer partial_;           // [splits, tokens, rows] float32
  DeviceBuffer tickets_;           // [blocks of rows], which are zeros between kernels
  DeviceBuffer dequantized_;       // [rows of a slice, cols]
  DeviceBuffer ordered_x_;         // [tokens, cols]
  std::set<const void*> checked_;  // The entries of kernels.
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_PRODUCTS_H_
