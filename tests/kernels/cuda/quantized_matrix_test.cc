// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/quantized_matrix.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

// The emulated device's memory is the host's.
template <typename T>
std::vector<T> Contents(const T* data, int64_t count) {
  return std::vector<T>(data, data + count);
}

TEST(QuantizedMatrixTest, ACopyHasTheSameContentsInItsOwnMemory) {
  constexpr int kRows = 24, kCols = 200, kTiles = 2, kBlocks = 2, kGroups = 4;
  EmulatedDevice device;
  for (const QuantizedFormat format : {QuantizedFormat::kInt4, QuantizedFormat::kInt8, QuantizedFormat::kFp8}) {
    const QuantizedCase w(format, kRows, kCols, /*group_cols=*/64, /*seed=*/1);
    std::vector<int32_t> order(kCols);
    for (int k = 0; k < kCols; ++k) order[k] = kCols - 1 - k;
    QuantizedMatrixView view = w.View();
    view.order = order.data();
    auto packed = QuantizedCudaMatrix::Pack(&device, &view, 1);
    const std::unique_ptr<QuantizedCudaMatrix> copy = packed->Copy();
    const PackedWeights &from = packed->weights(), &to = copy->weights();
    const bool is_int4 = format == QuantizedFormat::kInt4;
    const int64_t value_bytes = kTiles * kBlocks * (is_int4 ? 1024 : 2048);
    const int64_t num_scales = kTiles * (HasGroups(format) ? kGroups : 1) * kWeightTileRows;
    EXPECT_EQ(copy->num_bytes(), value_bytes + num_scales * (is_int4 ? 5 : 4)) << Name(format);
    EXPECT_NE(from.values, to.values);
    EXPECT_NE(from.scales, to.scales);
    EXPECT_NE(packed->order(), copy->order());
    const std::vector<char> values = Contents(from.values, value_bytes);
    const std::vector<float> scales = Contents(from.scales, num_scales);
    const std::vector<uint8_t> zeros = Contents(from.zeros, is_int4 ? num_scales : 0);
    packed.reset();  // The copy does not need it.
    EXPECT_EQ(Contents(to.values, value_bytes), values);
    EXPECT_EQ(Contents(to.scales, num_scales), scales);
    EXPECT_EQ(Contents(to.zeros, is_int4 ? num_scales : 0), zeros);
    EXPECT_EQ(Contents(copy->order(), kCols), order);
    EXPECT_EQ(copy->format(), format);
    EXPECT_EQ(copy->rows(), kRows);
    EXPECT_EQ(copy->cols(), kCols);
  }
}

}  // namespace
}  // namespace quire::cuda
