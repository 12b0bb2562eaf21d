// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_QUANTIZED_MATRIX_H_
#define QUIRE_KERNELS_CUDA_QUANTIZED_MATRIX_H_

#include <cstdint>
#include <memory>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/packed_weights.h"
#include "kernels/cuda/product_splits.h"
#include "kernels/linear.h"

namespace quire::cuda {

// The numbers of all stacked quantized matrices on the device, in the form of packed_weights.h. The device must outlive
// them.
class QuantizedCudaMatrix : public DeviceMatrix {
 public:
  // Copies the matrices to the device. Returns null when there is not enough memory. REQUIRES: the number of columns is
  // a multiple of 8. The worker refuses models with other matrices.
  static std::unique_ptr<QuantizedCudaMatrix> Pack(Device* device, const QuantizedMatrixView* matrices,
                                                   int num_matrices);
  ~QuantizedCudaMatrix() override;

  // Returns a copy in other memory of the device, or null when there is not enough. Benchmarks use many copies, because
  // packing takes seconds for each billion of weights.
  std::unique_ptr<QuantizedCudaMatrix> Copy() const;

  const QuantizedCudaMatrix* quantized() const override { return this; }
  QuantizedFormat format() const { return format_; }
  const PackedWeights& weights() const { return weights_; }
  // [cols], the element of the input that each column multiplies; null if that is the one of the same index.
  const int32_t* order() const { return order_; }
  // Returns what a product has to read: numbers, scales and zero points.
  int64_t num_bytes() const { return int64_t(value_bytes() + num_scales() * (sizeof(float) + (is_int4() ? 1 : 0))); }

 private:
  QuantizedCudaMatrix(Device* device, int rows, const QuantizedMatrixView& first);
  QuantizedCudaMatrix(const QuantizedCudaMatrix& other);  // Allocates nothing.
  bool is_int4() const { return IsInt4(format_); }
  size_t num_tiles() const { return size_t(CeilDiv(rows(), kWeightTileRows)); }
  size_t num_scales() const { return num_tiles() * weights_.num_groups * kWeightTileRows; }
  size_t value_bytes() const;
  bool Allocate();
  void Upload(const QuantizedMatrixView* matrices);

  Device* const device_;
  const QuantizedFormat format_;
  PackedWeights weights_ = {};
  char* values_ = nullptr;
  float* scales_ = nullptr;
  uint8_t* zeros_ = nullptr;
  int32_t* order_ = nullptr;
  const bool has_order_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_QUANTIZED_MATRIX_H_
