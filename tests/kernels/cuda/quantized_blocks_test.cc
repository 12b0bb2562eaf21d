// SPDX-License-Identifier: Apache-2.0

// Products of more tokens by quantized matrices than a thread block takes, and products whose splits are added by the
// kernel that makes them, on a device.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/quantized_products.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/expected_products.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

constexpr DataType kElement = DataType::kBFloat16;
constexpr int kTimes = 2;  // Number of times that a product is added.
constexpr QuantizedFormat kFormats[] = {QuantizedFormat::kInt4, QuantizedFormat::kInt8, QuantizedFormat::kFp8};

class QuantizedBlocksTest : public DeviceTest {
 protected:
  // Returns y[num_tokens, rows], which was `before`, after x * w^T was added kTimes times.
  std::vector<float> MultiplyAndAdd(const std::vector<float>& x, const QuantizedCase& w, std::vector<float> before) {
    const QuantizedMatrixView view = w.View();
    const auto packed = QuantizedCudaMatrix::Pack(device(), &view, 1);
    QuantizedProducts products(device(), device()->FindKernels(kElement, 128, 16), kElement, /*exact=*/false,
                               QuantizedProducts::kSliceBytes, /*most_packed=*/150);
    DeviceArray<char> device_x(device(), Encoded(x, kElement));
    DeviceArray<char> y(device(), Encoded(before, DataType::kFloat32));
    // The second product finds the tickets of the first one.
    for (int i = 0; i < kTimes; ++i) {
      products.Multiply(reinterpret_cast<const uint16_t*>(device_x.data()), *packed, int(x.size()) / w.cols, y.data(),
                        DataType::kFloat32, /*adds_to_y=*/true);
    }
    return Decoded(y.Download(), DataType::kFloat32);
  }

  void ExpectSums(QuantizedFormat format, int num_tokens, int rows, int cols, int group) {
    SCOPED_TRACE(testing::Message() << num_tokens << " tokens, " << rows << " x " << cols << ", " << Name(format));
    const QuantizedCase w(format, rows, cols, group, num_tokens);
    Random random(num_tokens);
    const std::vector<float> x = Rounded(random.Normals(size_t(num_tokens) * cols), kElement);
    const std::vector<float> before = random.Normals(size_t(num_tokens) * rows);
    ExpectNear(MultiplyAndAdd(x, w, before), ProductsOf(x, w), DataType::kFloat32, &before, /*rounds_twice=*/false,
               kTimes);
  }
};

TEST_F(QuantizedBlocksTest, TokensInSeveralBlocksAgreeWithTheFormula) {
  int num_tokens = 65;
  for (const QuantizedFormat format : kFormats) {
    ExpectSums(format, num_tokens, /*rows=*/40, /*cols=*/136, /*group=*/64);
    num_tokens += 40;
  }
}

// With 600 columns there are splits of three and two blocks of 128, and with 150 rows two blocks of rows, of which the
// second has missing tiles.
TEST_F(QuantizedBlocksTest, SplitsThatTheProductAddsAgreeWithTheFormula) {
  int num_tokens = 1;
  for (const QuantizedFormat format : kFormats) {
    ExpectSums(format, num_tokens, /*rows=*/150, /*cols=*/600, /*group=*/128);
    num_tokens += 7;
  }
}

}  // namespace
}  // namespace quire::cuda
