// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_ROUNDED_MULTIPLY_H_
#define QUIRE_TESTS_KERNELS_CUDA_ROUNDED_MULTIPLY_H_

#include <algorithm>
#include <vector>

#include "kernels/cuda/rounded_products.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {

// Multiplies x [num_tokens, cols] by a matrix on the device. Returns y [num_tokens, rows], which began with `initial`,
// to which the products are added, or with other numbers, which are overwritten. `has_room` is an argument of
// RoundedProducts::Multiply.
inline std::vector<float> MultiplyRounded(Device* device, RoundedProducts products, const std::vector<float>& x,
                                          const QuantizedCase& w, DataType element, DataType y_type,
                                          const std::vector<float>* initial = nullptr, bool has_room = false) {
  const QuantizedMatrixView view = w.View();
  const auto packed = ByteCudaMatrix::Pack(device, &view, 1);
  const int num_tokens = int(x.size()) / w.cols;
  const int room = has_room ? RoundedProducts::RowsWithRoom(num_tokens) : num_tokens;
  std::vector<float> before(size_t(room) * w.rows, 7);
  if (initial != nullptr) std::copy(initial->begin(), initial->end(), before.begin());
  DeviceArray<char> device_x(device, Encoded(x, element)), y(device, Encoded(before, y_type));
  products.Multiply(reinterpret_cast<const uint16_t*>(device_x.data()), *packed, num_tokens, y.data(), y_type,
                    initial != nullptr, has_room);
  std::vector<float> after = Decoded(y.Download(), y_type);
  after.resize(size_t(num_tokens) * w.rows);
  return after;
}

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_ROUNDED_MULTIPLY_H_
