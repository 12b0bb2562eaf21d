// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/byte_matrix.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/rounded_products.h"
#include "kernels/reference/quantized.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/quantized_cases.h"

namespace quire::cuda {
namespace {

TEST(ByteMatrixTest, RowsAndColumnsArePaddedWithZeros) {
  constexpr int kRows = 20, kCols = 136, kPaddedRows = 32, kDepth = 256;
  EmulatedDevice device;
  const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, /*seed=*/1);
  const QuantizedMatrixView views[] = {w.View(0, 7), w.View(7, 13)};
  auto packed = ByteCudaMatrix::Pack(&device, views, 2);
  const std::unique_ptr<ByteCudaMatrix> copy = packed->Copy();
  EXPECT_EQ(copy->num_bytes(), kPaddedRows * (kDepth + 4));
  packed.reset();  // The copy does not need it.
  ASSERT_EQ(copy->padded_rows(), kPaddedRows);
  ASSERT_EQ(copy->depth(), kDepth);
  for (int row = 0; row < kPaddedRows; ++row) {
    EXPECT_EQ(copy->scales()[row], row < kRows ? w.scales[row] : 0);
    for (int k = 0; k < kDepth; ++k) {
      const int expected = row < kRows && k < kCols ? w.values[row * kCols + k] : 0;
      ASSERT_EQ(copy->values()[row * kDepth + k], expected) << row << ", " << k;
    }
  }
}

// Matrices with several scales in a row are packed for inputs of 16 bits.
TEST(ByteMatrixTest, TakesFp8WithOneScaleForEachRow) {
  const QuantizedCase rows(QuantizedFormat::kFp8, 8, 136, 160, 1), groups(QuantizedFormat::kFp8, 8, 136, 128, 1);
  const QuantizedMatrixView views[] = {rows.View(), groups.View()};
  EXPECT_TRUE(ByteCudaMatrix::CanPack(views, 1));
  EXPECT_FALSE(ByteCudaMatrix::CanPack(views, 2));
  QuantizedMatrixView narrow_blocks = rows.View();
  narrow_blocks.has_blocks = true;
  EXPECT_FALSE(ByteCudaMatrix::CanPack(&narrow_blocks, 1));
  const QuantizedCase int8(QuantizedFormat::kInt8, 8, 136, 0, 1);
  const QuantizedMatrixView mixed[] = {int8.View(), rows.View()};
  EXPECT_TRUE(ByteCudaMatrix::CanPack(mixed, 1));
  EXPECT_FALSE(ByteCudaMatrix::CanPack(mixed, 2));
}

TEST(ByteMatrixTest, TakesFp8InWholeBlocksOf128) {
  const QuantizedCase whole = QuantizedCase::InBlocks(256, 256, 1), narrow = QuantizedCase::InBlocks(256, 200, 1);
  const QuantizedCase of_rows(QuantizedFormat::kFp8, 128, 256, 256, 1);
  const auto can_pack = [](const std::vector<QuantizedMatrixView>& views) {
    return ByteCudaMatrix::CanPack(views.data(), int(views.size()));
  };
  EXPECT_TRUE(can_pack({whole.View(), whole.View(128, 128), whole.View(128, 60)}));
  EXPECT_FALSE(can_pack({whole.View(0, 60), whole.View()}));  // The second matrix would begin in a block.
  EXPECT_FALSE(can_pack({narrow.View()}));
  EXPECT_FALSE(can_pack({whole.View(), of_rows.View()}));
}

TEST(ByteMatrixTest, ScalesOfBlocksLieBehindEachOtherInFours) {
  constexpr int kCols = 640, kBlocks = 5, kStride = 8;
  EmulatedDevice device;
  const QuantizedCase first = QuantizedCase::InBlocks(256, kCols, 1), second = QuantizedCase::InBlocks(20, kCols, 2);
  const QuantizedMatrixView views[] = {first.View(), second.View()};
  const auto packed = ByteCudaMatrix::Pack(&device, views, 2)->Copy();
  EXPECT_EQ(packed->num_bytes(), (256 + 32) * kCols + 3 * kStride * 4);
  ASSERT_EQ(packed->scale_stride(), kStride);
  for (int block = 0; block < kStride; ++block) {
    const bool exists = block < kBlocks;
    EXPECT_EQ(packed->scales()[block], exists ? first.scales[block] : 0);
    EXPECT_EQ(packed->scales()[kStride + block], exists ? first.scales[128 * kBlocks + block] : 0);
    EXPECT_EQ(packed->scales()[2 * kStride + block], exists ? second.scales[block] : 0);
  }
}

// The library multiplies 68 tokens in both cases. It writes them to the memory of gate and up, which has room for them.
TEST(ByteMatrixTest, GateAndUpInBlocksHaveRoomForAMultipleOfFourTokens) {
  constexpr int kRows = 128, kCols = 128, kTokens = 66, kMoreTokens = 68;
  constexpr DataType kElement = DataType::kBFloat16;
  auto owned_device = std::make_unique<EmulatedDevice>(/*is_sm90=*/true);
  Device* const device = owned_device.get();
  CudaBackend backend(std::move(owned_device), {.element = kElement});
  const QuantizedCase gate = QuantizedCase::InBlocks(kRows, kCols, 1), up = QuantizedCase::InBlocks(kRows, kCols, 2);
  const auto packed = backend.PackGatedQuantized(gate.View(), up.View());
  Random random(3);
  const DeviceArray<char> x(device, Encoded(random.Normals(kMoreTokens * kCols), kElement));
  const auto multiply = [&](int num_tokens) {
    const DeviceArray<uint16_t> y(device, num_tokens * kRows);
    backend.GatedLinear({.x = x.data(),
                         .w = packed.get(),
                         .bias = nullptr,
                         .y = y.data(),
                         .y_type = kElement,
                         .num_tokens = num_tokens});
    return y.Download();
  };
  const std::vector<uint16_t> few = multiply(kTokens);
  std::vector<uint16_t> many = multiply(kMoreTokens);
  many.resize(few.size());
  EXPECT_EQ(few, many);
}

class DeviceWithoutInt8 : public EmulatedDevice {
 public:
  bool MultiplyInt8(const Int8MatmulArgs&) override { return false; }
};

TEST(ByteMatrixTest, WithoutProductsOfTheLibraryTheKernelGivesTheSameBitsAndOneLineSaysSo) {
  constexpr int kRows = 24, kCols = 200, kTokens = 70;
  constexpr DataType kElement = DataType::kBFloat16;
  DeviceWithoutInt8 device;
  const QuantizedCase w(QuantizedFormat::kInt8, kRows, kCols, 0, /*seed=*/2);
  const QuantizedMatrixView view = w.View();
  const auto packed = ByteCudaMatrix::Pack(&device, &view, 1);
  RoundedProducts products(&device, device.FindKernels(kElement, 64, 16), kElement);
  Random random(2);
  const std::vector<float> x = Rounded(random.Normals(kTokens * kCols), kElement);
  DeviceArray<char> device_x(&device, Encoded(x, kElement));
  DeviceArray<float> y(&device, kTokens * kRows);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    products.Multiply(reinterpret_cast<const uint16_t*>(device_x.data()), *packed, kTokens, y.data(),
                      DataType::kFloat32, /*adds_to_y=*/false);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "GPU: cuBLASLt has no products of int8 of 70 tokens by 32 columns of 256; a slower kernel gives the same "
            "bits\n");
  EXPECT_EQ(y.Download(), reference::QuantizedLinear(x, w.values, w.scales, kCols));
  EXPECT_EQ(products.Check(*packed, &view, 1).message(), "");
}

class DeviceWithoutFp8 : public EmulatedDevice {
 public:
  DeviceWithoutFp8() : EmulatedDevice(/*is_sm90=*/true) {}
  bool MultiplyFp8(const Fp8MatmulArgs&) override { return false; }
};

TEST(ByteMatrixTest, WithoutProductsOfFp8TheKernelMultipliesStacksAndOneLineSaysSo) {
  constexpr int kRows = 40, kCols = 136;
  constexpr DataType kElement = DataType::kBFloat16;
  DeviceWithoutFp8 device;
  const QuantizedCase w(QuantizedFormat::kFp8, kRows, kCols, kCols, /*seed=*/3);
  const QuantizedMatrixView gate_and_up[] = {w.View(0, 24), w.View(24, 16)};
  const auto packed = ByteCudaMatrix::Pack(&device, gate_and_up, 2);
  RoundedProducts products(&device, device.FindKernels(kElement, 64, 16), kElement);
  testing::internal::CaptureStderr();
  EXPECT_EQ(products.Check(*packed, gate_and_up, 2).message(), "");
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "GPU: cuBLASLt has no products of FP8 of 65 tokens by 40 columns of 256; a slower kernel multiplies them\n");
}

TEST(ByteMatrixTest, WithoutProductsOfFp8InBlocksTheKernelMultipliesAndAnotherLineSaysSo) {
  constexpr DataType kElement = DataType::kBFloat16;
  DeviceWithoutFp8 device;
  RoundedProducts products(&device, device.FindKernels(kElement, 64, 16), kElement);
  const QuantizedCase of_rows(QuantizedFormat::kFp8, 40, 256, 256, /*seed=*/3);
  const QuantizedCase in_blocks = QuantizedCase::InBlocks(40, 256, 4);
  testing::internal::CaptureStderr();
  for (const QuantizedCase* const w : {&of_rows, &in_blocks}) {
    const QuantizedMatrixView view = w->View();
    EXPECT_EQ(products.Check(*ByteCudaMatrix::Pack(&device, &view, 1), &view, 1).message(), "");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "GPU: cuBLASLt has no products of FP8 of 65 tokens by 40 columns of 256; a slower kernel multiplies them\n"
            "GPU: cuBLASLt has no products of FP8 in blocks of 65 tokens by 40 columns of 256; a slower kernel "
            "multiplies them\n");
}

}  // namespace
}  // namespace quire::cuda
