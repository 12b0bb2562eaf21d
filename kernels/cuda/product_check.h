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

// What a product should be.
//   kExactWeights    The sum of x * w, where a weight w is (value - zero) * scale.
//   kRoundedWeights  The same, where a weight is that product in float32, rounded to the element type.
//   kRoundedInputs   For int8 and FP8: the sum of the products of the numbers of x, rounded to 8 bits, and of w, times
//                    both scales (byte_numbers.h), with blocks for each 128 columns. In int8 every bit counts.
enum class ProductFormula { kExactWeights, kRoundedWeights, kRoundedInputs };

// Compares products of a device by quantized matrices with the same products computed one element at a time on the
// host, from what the matrices were packed from. It looks at up to 64 rows of weights, the first and the last among
// them. Matrices and device must outlive it.
class ProductCheck {
 public:
  ProductCheck(Device* device, DataType element, const QuantizedMatrixView* matrices, int num_matrices);

  // multiply(x, y) queues y[num_tokens, rows] = x[num_tokens, cols] * w^T; both are on the device. If an element of y
  // is farther from the host's result than the bounds of sum_tolerance.h allow, the error names it.
  BackendStatus Run(int num_tokens, ProductFormula formula,
                    const std::function<void(const uint16_t* x, float* y)>& multiply) const;

 private:
  // A row of the stacked matrices.
  struct Row {
    const QuantizedMatrixView* matrix;
    int index;  // Index of the row in that matrix.
  };
  // The right result, and how far a device may be from it.
  struct Expected {
    double result;
    double tolerance;
  };

  Row FindRow(int n) const;
  // Returns the weights of a row in the order of its own columns, which matrix->order compares with the columns of x.
  std::vector<double> WeightsOf(const Row& row, ProductFormula formula) const;
  // Returns the product of x[num_tokens, cols] and a row for each token.
  std::vector<Expected> Products(const std::vector<float>& x, const Row& row, ProductFormula formula) const;

  Device* const device_;
  const DataType element_;
  const std::vector<QuantizedMatrixView> matrices_;
  int rows_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PRODUCT_CHECK_H_
