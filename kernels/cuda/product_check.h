// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PRODUCT_CHECK_H_
#define QUIRE_KERNELS_CUDA_PRODUCT_CHECK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/backend_status.h"
#include "kernels/cuda/device.h"
#include "kernels/linear.h"

namespace quire::cuda {

// The weights of a product: (value - zero) * scale as it is, or that product in float32, rounded to the element type.
enum class WeightsOfProduct { kExact, kRounded };

// Compares products of a device by quantized matrices with the same products computed one element at a time on the
// host, from what the matrices were packed from. It looks at up to 64 rows of weights, the first and the last among
// them. Matrices and device must outlive it.
class ProductCheck {
 public:
  ProductCheck(Device* device, DataType element, const QuantizedMatrixView* matrices, int num_matrices);

  // multiply(x, y) queues y[num_tokens, rows] = x[num_tokens, cols] * w^T; both are on the device. If an element of y
  // is farther from the host's result than rounding in float32 explains, the error names it.
  BackendStatus Run(int num_tokens, WeightsOfProduct weights,
                    const std::function<void(const uint16_t* x, float* y)>& multiply) const;

 private:
  // Returns row n of the stacked matrices. Its columns are in the order of x.
  std::vector<double> WeightsOfRow(int n, WeightsOfProduct weights) const;

  Device* const device_;
  const DataType element_;
  const std::vector<QuantizedMatrixView> matrices_;
  int rows_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PRODUCT_CHECK_H_
