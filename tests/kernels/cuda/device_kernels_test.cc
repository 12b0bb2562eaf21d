// SPDX-License-Identifier: Apache-2.0

// The operations of a device besides attention: the small kernels and multiplication compared with float64, copies bit
// for bit, and recordings.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/copy_blocks.h"
#include "kernels/cuda/kv_unit.h"
#include "kernels/cuda/rank_kernels.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/row_kernels.h"
#include "kernels/reference/dense.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/cuda/rope_append_case.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;         // Results are rounded to bfloat16.
constexpr double kFloat32Tolerance = 1e-5;  // For sums of exact products.
constexpr DataType kElements[] = {DataType::kBFloat16, DataType::kFloat16};

using DeviceKernelsTest = DeviceTest;

uint16_t Bits(float value, DataType type) {
  return type == DataType::kBFloat16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
}
float Value(uint16_t bits, DataType type) {
  return type == DataType::kBFloat16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}
std::vector<uint16_t> AllBits(const std::vector<float>& values, DataType type) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(Bits(value, type));
  return bits;
}
std::vector<float> AllValues(const std::vector<uint16_t>& bits, DataType type) {
  std::vector<float> values;
  for (const uint16_t b : bits) values.push_back(Value(b, type));
  return values;
}

const KernelTable& KernelsOf(Device* device, DataType element) {
  return *device->FindKernels(element, 128, 16);
}

TEST_F(DeviceKernelsTest, RmsNormAgreesWithFloat64) {
  constexpr int kRows = 5;
  for (const DataType element : kElements) {
    for (const int dim : {8, 288, 4096 + 8}) {
      Random random(dim);
      const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * dim, 3), element);
      const std::vector<float> weight = random.Normals(dim);
      DeviceArray<uint16_t> x(device(), bits);
      DeviceArray<float> weights(device(), weight);
      device()->Launch(KernelsOf(device(), element).rms_norm,
                       RmsNormKernelArgs{x.data(), weights.data(), x.data(), kRows, dim, 1e-5f}, 3);
      EXPECT_LT(RelativeError(AllValues(x.Download(), element),
                              reference::RmsNorm(Doubles(AllValues(bits, element)), Doubles(weight), 1e-5)),
                kTolerance)
          << dim;
    }
  }
}

// The rows are parts of wider ones, as Q and K are.
TEST_F(DeviceKernelsTest, RmsNormOfPartsOfRowsAgreesWithFloat64) {
  constexpr int kRows = 5, kStride = 296 + 40;
  for (const DataType element : kElements) {
    const int dim = 296;
    Random random(dim);
    const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * kStride, 3), element);
    const std::vector<float> weight = random.Normals(dim), values = AllValues(bits, element);
    std::vector<float> parts;
    for (int row = 0; row < kRows; ++row) {
      parts.insert(parts.end(), values.begin() + row * kStride, values.begin() + row * kStride + dim);
    }
    const std::vector<double> normed = reference::RmsNorm(Doubles(parts), Doubles(weight), 1e-5);
    std::vector<double> expected = Doubles(values);  // Nothing behind the parts changes.
    for (size_t i = 0; i < normed.size(); ++i) expected[i / dim * kStride + i % dim] = normed[i];
    DeviceArray<uint16_t> x(device(), bits), y(device(), normed.size());
    DeviceArray<float> weights(device(), weight);
    RmsNormKernelArgs args = {x.data(), weights.data(), y.data(), kRows, dim, 1e-5f};
    args.x_stride = kStride;
    device()->Launch(KernelsOf(device(), element).rms_norm, args, 3);
    EXPECT_LT(RelativeError(AllValues(y.Download(), element), normed), kTolerance);
    args.y = x.data();
    args.y_stride = kStride;
    device()->Launch(KernelsOf(device(), element).rms_norm, args, 3);
    EXPECT_LT(RelativeError(AllValues(x.Download(), element), expected), kTolerance);
    // A rank stores some columns.
    constexpr int kFirst = 16, kColumns = 136;
    x.Upload(bits);
    args.y = y.data();
    args.y_stride = dim;
    args.y_first = kFirst;
    args.y_cols = kColumns;
    device()->Launch(KernelsOf(device(), element).rms_norm, args, 3);
    std::vector<double> some =
        Doubles(AllValues(AllBits(std::vector<float>(normed.begin(), normed.end()), element), element));
    for (int i = 0; i < kRows * kColumns; ++i) {
      some[i / kColumns * dim + i % kColumns] = normed[i / kColumns * dim + kFirst + i % kColumns];
    }
    EXPECT_LT(RelativeError(AllValues(y.Download(), element), some), kTolerance);
  }
}

TEST_F(DeviceKernelsTest, RmsNormAddsItsResidual) {
  constexpr int kRows = 5, kDim = 2048 + 8;
  for (const DataType element : kElements) {
    Random random(5);
    const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * kDim, 3), element);
    const std::vector<uint16_t> residual_bits = AllBits(random.Normals(size_t(kRows) * kDim), element);
    const std::vector<float> weight = random.Normals(kDim);
    std::vector<double> expected = reference::RmsNorm(Doubles(AllValues(bits, element)), Doubles(weight), 1e-5);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += double{Value(residual_bits[i], element)};
    DeviceArray<uint16_t> x(device(), bits), y(device(), residual_bits);
    DeviceArray<float> weights(device(), weight);
    RmsNormKernelArgs args = {x.data(), weights.data(), y.data(), kRows, kDim, 1e-5f};
    args.residual = y.data();
    device()->Launch(KernelsOf(device(), element).rms_norm, args, 3);
    EXPECT_LT(RelativeError(AllValues(y.Download(), element), expected), kTolerance);
  }
}

TEST_F(DeviceKernelsTest, ANormCanSubtractTheMean) {
  constexpr int kRows = 5;
  for (const DataType element : kElements) {
    for (const int dim : {8, 288, 4096 + 8}) {
      Random random(dim);
      std::vector<float> values = random.Normals(size_t(kRows) * dim);
      for (float& value : values) value += 2;
      const std::vector<uint16_t> bits = AllBits(values, element);
      const std::vector<float> weight = random.Normals(dim);
      std::vector<double> centred = Doubles(AllValues(bits, element));
      for (int row = 0; row < kRows; ++row) {
        const auto first = centred.begin() + row * dim;
        const double mean = std::accumulate(first, first + dim, 0.0) / dim;
        for (int i = 0; i < dim; ++i) first[i] -= mean;
      }
      DeviceArray<uint16_t> x(device(), bits);
      DeviceArray<float> weights(device(), weight);
      RmsNormKernelArgs args = {x.data(), weights.data(), x.data(), kRows, dim, 1e-5f};
      args.subtracts_mean = true;
      device()->Launch(KernelsOf(device(), element).rms_norm, args, 3);
      EXPECT_LT(RelativeError(AllValues(x.Download(), element), reference::RmsNorm(centred, Doubles(weight), 1e-5)),
                kTolerance)
          << dim;
    }
  }
}

TEST_F(DeviceKernelsTest, SiluMulAgreesWithFloat64) {
  constexpr int kRows = 7;
  for (const DataType element : kElements) {
    for (const int dim : {8, 1000}) {
      Random random(dim);
      const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * 2 * dim, 4), element);
      DeviceArray<uint16_t> x(device(), bits), y(device(), size_t(kRows) * dim);
      device()->Launch(KernelsOf(device(), element).silu_mul, GatedArgs{x.data(), y.data(), kRows, dim}, 3);
      EXPECT_LT(
          RelativeError(AllValues(y.Download(), element), reference::SiluMul(Doubles(AllValues(bits, element)), dim)),
          kTolerance)
          << dim;
    }
  }
}

TEST_F(DeviceKernelsTest, GeluMulAgreesWithFloat64) {
  constexpr int kRows = 7;
  for (const DataType element : kElements) {
    for (const int dim : {8, 1000}) {
      Random random(dim);
      const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * 2 * dim, 2), element);
      DeviceArray<uint16_t> x(device(), bits), y(device(), size_t(kRows) * dim);
      device()->Launch(KernelsOf(device(), element).gelu_mul, GatedArgs{x.data(), y.data(), kRows, dim}, 3);
      EXPECT_LT(RelativeError(AllValues(y.Download(), element),
                              reference::GeluTanhMul(Doubles(AllValues(bits, element)), dim)),
                kTolerance)
          << dim;
    }
  }
}

TEST_F(DeviceKernelsTest, PlainActivationsAgreeWithFloat64) {
  const XieluShape shape = {.positive = 0.8f, .negative = 1.1f, .beta = 0.5f, .limit = -1e-3f};
  const auto xielu = [&](double a) {
    const double curve = a > 0 ? double{shape.positive} * a * a
                               : double{shape.negative} * (std::expm1(std::min(a, double{shape.limit})) - a);
    return curve + double{shape.beta} * a;
  };
  for (const DataType element : kElements) {
    for (const int count : {8, 7000}) {
      Random random(count);
      const std::vector<uint16_t> bits = AllBits(random.Normals(count, 2), element);
      for (const PlainActivation activation : {PlainActivation::kSquaredRelu, PlainActivation::kXielu}) {
        std::vector<double> expected = Doubles(AllValues(bits, element));
        for (double& a : expected) {
          a = activation == PlainActivation::kXielu ? xielu(a) : std::max(a, 0.0) * std::max(a, 0.0);
        }
        DeviceArray<uint16_t> x(device(), bits), y(device(), count);
        device()->Launch(KernelsOf(device(), element).activate,
                         ActivateKernelArgs{x.data(), y.data(), count, activation, shape}, 3);
        EXPECT_LT(RelativeError(AllValues(y.Download(), element), expected), kTolerance) << count;
      }
    }
  }
}

TEST_F(DeviceKernelsTest, ScaledRowsAgreeWithFloat64) {
  constexpr int kRows = 7;
  constexpr float kScale = 0.3f;
  for (const DataType element : kElements) {
    for (const int dim : {8, 1000}) {
      Random random(dim);
      const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * dim), element);
      const std::vector<uint16_t> residual_bits = AllBits(random.Normals(bits.size()), element);
      const std::vector<float> bias = random.Normals(dim);
      DeviceArray<uint16_t> x(device(), bits);
      DeviceArray<float> biases(device(), bias);
      for (const bool adds : {false, true}) {
        std::vector<double> expected = Doubles(AllValues(bits, element));
        for (size_t i = 0; i < expected.size(); ++i) {
          if (adds) expected[i] += double{bias[i % dim]};
          expected[i] *= double{kScale};
          if (adds) expected[i] += double{Value(residual_bits[i], element)};
        }
        DeviceArray<uint16_t> y(device(), residual_bits);
        device()->Launch(KernelsOf(device(), element).scale_rows,
                         ScaleRowsArgs{x.data(), adds ? biases.data() : nullptr, adds ? y.data() : nullptr, y.data(),
                                       kRows, dim, kScale},
                         3);
        EXPECT_LT(RelativeError(AllValues(y.Download(), element), expected), kTolerance) << dim;
      }
    }
  }
}

TEST_F(DeviceKernelsTest, LogitsAreScaledAndCapped) {
  constexpr float kScale = 1.7f, kSoftcap = 3;
  for (const int count : {1, 4, 4099}) {
    Random random(count);
    const std::vector<float> logits = random.Normals(count, 4);
    for (const float softcap : {0.0f, kSoftcap}) {
      std::vector<double> expected = Doubles(logits);
      for (double& logit : expected) {
        logit *= double{kScale};
        if (softcap > 0) logit = reference::Softcap(logit, softcap);
      }
      DeviceArray<float> y(device(), logits);
      device()->Launch(KernelsOf(device(), DataType::kBFloat16).cap_logits,
                       CapLogitsArgs{y.data(), count, kScale, softcap}, 2);
      EXPECT_LT(RelativeError(y.Download(), expected), kFloat32Tolerance) << count << ", " << softcap;
    }
  }
}

TEST_F(DeviceKernelsTest, LargeLogitsReachTheSoftcap) {
  DeviceArray<float> y(device(), std::vector<float>{-3e38f, -1000, 1000, 3e38f, NAN});
  device()->Launch(KernelsOf(device(), DataType::kBFloat16).cap_logits, CapLogitsArgs{y.data(), 5, 1, 30}, 1);
  const std::vector<float> capped = y.Download();
  EXPECT_EQ(std::vector<float>(capped.begin(), capped.end() - 1), (std::vector<float>{-30, -30, 30, 30}));
  EXPECT_TRUE(std::isnan(capped.back()));
}

TEST_F(DeviceKernelsTest, AddBiasAgreesWithFloat64) {
  constexpr int kRows = 7;
  for (const DataType element : kElements) {
    for (const int dim : {8, 1000}) {
      Random random(dim);
      const std::vector<uint16_t> bits = AllBits(random.Normals(size_t(kRows) * dim), element);
      const std::vector<float> bias = random.Normals(dim);
      std::vector<double> expected = Doubles(AllValues(bits, element));
      for (size_t i = 0; i < expected.size(); ++i) expected[i] += double{bias[i % dim]};
      DeviceArray<uint16_t> y(device(), bits);
      DeviceArray<float> biases(device(), bias);
      device()->Launch(KernelsOf(device(), element).add_bias, AddBiasArgs{y.data(), biases.data(), kRows, dim}, 3);
      EXPECT_LT(RelativeError(AllValues(y.Download(), element), expected), kTolerance) << dim;
    }
  }
}

// The tree of parts that four ranks have, which is not their sum from left to right.
float TreeOf(const std::vector<float>& parts, size_t count, size_t at, size_t begin, size_t end) {
  if (end - begin == 1) return parts[begin * count + at];
  const size_t middle = (begin + end) / 2;
  return TreeOf(parts, count, at, begin, middle) + TreeOf(parts, count, at, middle, end);
}

TEST_F(DeviceKernelsTest, PartsAreAddedAsATreeBeforeTheyAreRounded) {
  constexpr int kRows = 5, kDim = 264;
  constexpr size_t kCount = size_t{kRows} * kDim;
  for (const DataType element : kElements) {
    for (const int num_parts : {1, 2, 4, 8}) {
      for (const bool has_others : {false, true}) {
        Random random(num_parts);
        const std::vector<float> parts = random.Normals(num_parts * kCount), bias = random.Normals(kDim);
        const std::vector<uint16_t> residual = AllBits(random.Normals(kCount), element);
        const float scale = has_others ? 0.5f : 1;
        std::vector<uint16_t> expected;
        for (size_t i = 0; i < kCount; ++i) {
          const float sum = TreeOf(parts, kCount, i, 0, num_parts);
          expected.push_back(
              Bits(has_others ? (sum + bias[i % kDim]) * scale + Value(residual[i], element) : sum, element));
        }
        DeviceArray<float> parts_on_device(device(), parts), biases(device(), bias);
        DeviceArray<uint16_t> y(device(), residual);
        device()->Launch(KernelsOf(device(), element).add_parts,
                         AddPartsKernelArgs{.parts = parts_on_device.data(),
                                            .bias = has_others ? biases.data() : nullptr,
                                            .residual = has_others ? y.data() : nullptr,
                                            .y = y.data(),
                                            .num_parts = num_parts,
                                            .num_rows = kRows,
                                            .dim = kDim,
                                            .scale = scale},
                         2);
        EXPECT_EQ(y.Download(), expected) << num_parts << " parts, others " << has_others;
      }
    }
  }
}

// The last part has fewer columns, and the rows of y have room behind them.
TEST_F(DeviceKernelsTest, ColumnsOfPartsAreJoined) {
  constexpr int kRows = 7, kParts = 3, kPart = 40, kLast = 33, kStride = 2 * kPart + kLast + 5;
  std::vector<uint32_t> x(kParts * kRows * kPart), expected(kRows * kStride, 0);
  std::iota(x.begin(), x.end(), 1u);
  for (int row = 0; row < kRows; ++row) {
    for (int word = 0; word < 2 * kPart + kLast; ++word) {
      expected[row * kStride + word] = x[(word / kPart * kRows + row) * kPart + word % kPart];
    }
  }
  DeviceArray<uint32_t> parts(device(), x), y(device(), std::vector<uint32_t>(kRows * kStride, 0));
  device()->Launch(KernelsOf(device(), DataType::kBFloat16).join_columns,
                   JoinColumnsArgs{.x = parts.data(),
                                   .y = y.data(),
                                   .num_rows = kRows,
                                   .num_words = 2 * kPart + kLast,
                                   .part_words = kPart,
                                   .x_stride = kPart,
                                   .y_stride = kStride},
                   2);
  EXPECT_EQ(y.Download(), expected);
}

TEST_F(DeviceKernelsTest, GatheredRowsAreTheSame) {
  constexpr int kDim = 264, kRows = 30;
  Random random(3);
  const std::vector<uint16_t> bits = AllBits(random.Normals(20 * kDim), DataType::kBFloat16);
  std::vector<int32_t> rows;
  std::vector<uint16_t> expected;
  for (int i = 0; i < kRows; ++i) {
    rows.push_back(random.Int(0, 19));
    expected.insert(expected.end(), bits.begin() + rows.back() * kDim, bits.begin() + (rows.back() + 1) * kDim);
  }
  DeviceArray<uint16_t> x(device(), bits), y(device(), kRows * kDim);
  DeviceArray<int32_t> row_array(device(), rows);
  device()->Launch(KernelsOf(device(), DataType::kBFloat16).gather_rows,
                   GatherRowsArgs{x.data(), row_array.data(), y.data(), kRows, kDim}, 2);
  EXPECT_EQ(y.Download(), expected);
  for (const DataType element : kElements) {
    std::vector<uint16_t> scaled;
    for (const uint16_t row_bits : expected) scaled.push_back(Bits(3.5f * Value(row_bits, element), element));
    device()->Launch(KernelsOf(device(), element).gather_scaled_rows,
                     GatherRowsArgs{x.data(), row_array.data(), y.data(), kRows, kDim, nullptr, 3.5f}, 2);
    EXPECT_EQ(y.Download(), scaled) << Name(element);
  }
}

TEST_F(DeviceKernelsTest, CopiedBlocksAreTheSameInAllLayersAndNothingElseChanges) {
  constexpr int kBlocks = 9, kLayers = 3;
  constexpr int64_t kBlockBytes = 4096 + 16;
  Random random(1);
  std::vector<char> bytes(kBlocks * kBlockBytes * kLayers);
  for (char& byte : bytes) byte = char(random.Int(0, 255));
  const std::vector<uint32_t> sources = {0, 0, 7}, destinations = {3, 5, 1};
  std::vector<char> expected = bytes;
  DeviceArray<char> pools(device(), bytes);
  std::vector<char*> pointers;
  for (int layer = 0; layer < kLayers; ++layer) {
    const int64_t first = layer * kBlocks * kBlockBytes;
    pointers.push_back(pools.data() + first);
    for (size_t i = 0; i < sources.size(); ++i) {
      std::copy_n(expected.begin() + first + sources[i] * kBlockBytes, kBlockBytes,
                  expected.begin() + first + destinations[i] * kBlockBytes);
    }
  }
  DeviceArray<uint32_t> from(device(), sources), to(device(), destinations);
  DeviceArray<char*> pool_array(device(), pointers);
  device()->Launch(KernelsOf(device(), DataType::kBFloat16).copy_blocks,
                   CopyBlocksArgs{from.data(), to.data(), int(sources.size()), kLayers, kBlockBytes, pool_array.data()},
                   4);
  EXPECT_EQ(pools.Download(), expected);
}

template <int kHeadDim>
void CheckRopeAppend(Device* device, const KernelTable& kernels, DataType element, int block_size,
                     const RopeVariant& variant, bool int8_kv = false) {
  const RopeAppendCase<kHeadDim> inputs(block_size, variant, element, int8_kv);
  DeviceArray<uint16_t> qkv(device, inputs.qkv), pool(device, inputs.pool_elements());
  DeviceArray<int32_t> positions(device, inputs.positions);
  DeviceArray<int64_t> slots(device, inputs.slots);
  DeviceArray<float> table(device, inputs.rotary_table), q_norm(device, inputs.q_norm), k_norm(device, inputs.k_norm);
  RopeAppendKernelArgs args = inputs.Args();
  args.qkv = qkv.data();
  args.positions = positions.data();
  args.slots = slots.data();
  args.rotary_table = table.data();
  inputs.SetNorms(q_norm.data(), k_norm.data(), &args);
  args.kv_pool = reinterpret_cast<char*>(pool.data());
  device->Launch(kernels.rope_append, args, 3);
  inputs.Check(qkv.Download().data(), pool.Download().data());
}

template <int... kHeadDims, typename... Args>
void CheckRopeAppendAmong(int head_dim, const Args&... args) {
  ((head_dim == kHeadDims ? CheckRopeAppend<kHeadDims>(args...) : void()), ...);
}

TEST_F(DeviceKernelsTest, RopeAppendOfEveryTableRotatesAndStores) {
  ForEachTable(*device(), [&](DataType element, int head_dim, int unit_tokens, const KernelTable& kernels) {
    // At least 16 dimensions rotate, and in the larger heads of the last two variants not all.
    const int half = head_dim / 32 * 16, quarter = head_dim / 64 * 16;
    const RopeVariant variants[] = {{},
                                    {.has_norm = true},
                                    {.has_norm = true, .unrotated = half, .query_growth = 0.3f},
                                    {.has_norm = true, .unrotated = quarter, .norms_after_rotation = true},
                                    {.unrotated = head_dim - 16}};
    for (const RopeVariant& variant : variants) {
      for (const int num_units : {1, 2}) {
        const int block_size = num_units * unit_tokens;
        SCOPED_TRACE(testing::Message() << Name(element) << ", blocks of " << block_size << ", heads of " << head_dim
                                        << ", variant " << &variant - variants);
        CheckRopeAppendAmong<16, 32, 64, 80, 96, 128, 256>(head_dim, device(), kernels, element, block_size, variant);
        if (kernels.int8_kv == nullptr) continue;
        CheckRopeAppendAmong<16, 32, 64, 80, 96, 128>(head_dim, device(), *kernels.int8_kv, element, block_size,
                                                      variant, /*int8_kv=*/true);
      }
    }
  });
}

// Checks the product of random matrices, both stored and added to y. Before it is added to a y of 16 bits, it may be
// rounded, too.
void CheckMultiply(Device* device, int num_rows, int num_columns, int depth, DataType element, DataType y_type) {
  SCOPED_TRACE(testing::Message() << num_rows << " rows by " << num_columns << ", depth " << depth << ", "
                                  << Name(element) << " to " << Name(y_type));
  Random random(uint64_t(num_rows) * num_columns + depth);
  const std::vector<uint16_t> x_bits = AllBits(random.Normals(size_t(num_rows) * depth), element);
  const std::vector<uint16_t> w_bits = AllBits(random.Normals(size_t(num_columns) * depth), element);
  const std::vector<float> initial = Rounded(random.Normals(size_t(num_rows) * num_columns), y_type);
  const std::vector<double> product =
      reference::Linear(Doubles(AllValues(x_bits, element)), Doubles(AllValues(w_bits, element)), depth);
  DeviceArray<uint16_t> x(device, x_bits), w(device, w_bits);
  for (const bool adds_to_y : {false, true}) {
    std::vector<double> expected = product;
    for (size_t i = 0; i < expected.size() && adds_to_y; ++i) expected[i] += double{initial[i]};
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    DeviceArray<char> y(device, Encoded(initial, y_type));
    device->Multiply({x.data(), w.data(), y.data(), num_rows, num_columns, depth, element, y_type, adds_to_y});
    const std::vector<float> actual = Decoded(y.Download(), y_type);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double rounded = std::abs(expected[i]) + (adds_to_y ? std::abs(product[i]) : 0);
      ASSERT_NEAR(actual[i], expected[i], kFloat32Tolerance * largest + UnitRoundoff(y_type) * rounded)
          << i << ", adds " << adds_to_y;
    }
  }
}

TEST_F(DeviceKernelsTest, MultiplyAgreesWithFloat64) {
  for (const DataType element : kElements) {
    for (const DataType y_type : {element, DataType::kFloat32}) {
      for (const int num_rows : {1, 2, 5, 17, 70}) CheckMultiply(device(), num_rows, 96, 136, element, y_type);
      // cuBLASLt has no exact algorithm for a single column, and no model needs one.
      if (!IsExactGpu()) CheckMultiply(device(), 3, 1, 8, element, y_type);
      CheckMultiply(device(), 9, 321, 64, element, y_type);  // An odd number of columns.
    }
  }
}

TEST_F(DeviceKernelsTest, ExactProductsOfARowDoNotDependOnTheOthers) {
  if (device()->NumericsFingerprint().find("tuned") != std::string::npos) GTEST_SKIP() << "not exact";
  constexpr int kRows = 70, kColumns = 96, kDepth = 512;
  constexpr DataType kType = DataType::kBFloat16;
  Random random(4);
  DeviceArray<uint16_t> x(device(), AllBits(random.Normals(size_t(kRows) * kDepth), kType));
  DeviceArray<uint16_t> w(device(), AllBits(random.Normals(size_t(kColumns) * kDepth), kType));
  const auto product = [&](int first_row, int num_rows) {
    DeviceArray<float> y(device(), size_t(num_rows) * kColumns);
    device()->Multiply({x.data() + first_row * kDepth, w.data(), y.data(), num_rows, kColumns, kDepth, kType,
                        DataType::kFloat32, false});
    return y.Download();
  };
  const std::vector<float> all = product(0, kRows);
  for (const auto& [first_row, num_rows] : {std::pair(0, 1), {41, 1}, {69, 1}, {7, 3}, {30, 17}, {5, 64}}) {
    const auto expected = all.begin() + first_row * kColumns;
    EXPECT_EQ(product(first_row, num_rows), std::vector<float>(expected, expected + num_rows * kColumns))
        << num_rows << " rows from " << first_row;
  }
}

// Two orders of summation differ in few elements after rounding to 16 bits, so many small products are compared.
TEST_F(DeviceKernelsTest, ExactProductsIn16BitsDoNotDependOnTheNumberOfRows) {
  if (device()->NumericsFingerprint().find("tuned") != std::string::npos) GTEST_SKIP() << "not exact";
  constexpr int kRows = 1024, kDepth = 512, kRowsAtOnce = 8;
  for (const DataType element : kElements) {
    for (const int num_columns : {16, 32, 48}) {
      Random random(num_columns);
      const DeviceArray<uint16_t> x(device(), AllBits(random.Normals(size_t(kRows) * kDepth), element));
      const DeviceArray<uint16_t> w(device(), AllBits(random.Normals(size_t(num_columns) * kDepth), element));
      const DeviceArray<uint16_t> together(device(), size_t(kRows) * num_columns), apart(device(), together.size());
      const auto multiply = [&](int first_row, int num_rows, uint16_t* y) {
        device()->Multiply({x.data() + first_row * kDepth, w.data(), y + first_row * num_columns, num_rows, num_columns,
                            kDepth, element, element, false});
      };
      multiply(0, kRows, together.data());
      for (int row = 0; row < kRows; row += kRowsAtOnce) multiply(row, kRowsAtOnce, apart.data());
      EXPECT_TRUE(together.Download() == apart.Download()) << num_columns << " columns of " << Name(element);
    }
  }
}

TEST_F(DeviceKernelsTest, CopiesReachWhatTheyName) {
  constexpr int kPieces = 100, kPieceBytes = 48;
  Random random(5);
  std::vector<char> bytes(2 * kPieces * kPieceBytes);
  for (char& byte : bytes) byte = char(random.Int(0, 255));
  DeviceArray<char> memory(device(), bytes);
  char* const host = static_cast<char*>(device()->AllocateHost(bytes.size()));
  std::vector<CopyPiece> out, in;
  std::vector<char> expected = bytes;
  for (int i = 0; i < kPieces; ++i) {  // The even pieces are copied to the host and come back as the odd ones.
    const int other = (i * 7 + 3) % kPieces;
    const size_t bytes_of_piece = i == 5 ? 0 : kPieceBytes;
    out.push_back({host + i * kPieceBytes, memory.data() + 2 * i * kPieceBytes, kPieceBytes});
    in.push_back({memory.data() + (2 * other + 1) * kPieceBytes, host + i * kPieceBytes, bytes_of_piece});
    std::copy_n(bytes.begin() + 2 * i * kPieceBytes, bytes_of_piece, expected.begin() + (2 * other + 1) * kPieceBytes);
  }
  device()->CopyBatch(out.data(), kPieces);
  device()->CopyBatch(in.data(), kPieces);
  device()->CopyBatch(nullptr, 0);
  device()->Copy(nullptr, nullptr, 0);
  EXPECT_EQ(memory.Download(), expected);
  device()->FreeHost(host);
}

TEST_F(DeviceKernelsTest, NewMemoryIsZeroAndAligned) {
  DeviceArray<char> dirty(device(), std::vector<char>(100000, 'x'));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{100000}}) {
    DeviceArray<char> memory(device(), size);
    ASSERT_NE(memory.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 256, 0u);
    EXPECT_EQ(memory.Download(), std::vector<char>(size));
  }
}

// A chain in which every step needs the previous one: a norm, a multiplication, and a norm of the product.
TEST_F(DeviceKernelsTest, ARecordingDoesTheSameEachTimeItIsReplayed) {
  constexpr int kRows = 4, kDim = 64;
  constexpr DataType kType = DataType::kBFloat16;
  Random random(9);
  DeviceArray<uint16_t> x(device(), size_t(kRows) * kDim), y(device(), x.size()), z(device(), x.size());
  DeviceArray<uint16_t> w(device(), AllBits(random.Normals(size_t(kDim) * kDim), kType));
  DeviceArray<float> ones(device(), std::vector<float>(kDim, 1));
  const Kernel<RmsNormKernelArgs>& norm = KernelsOf(device(), kType).rms_norm;
  const auto run = [&] {
    device()->Launch(norm, RmsNormKernelArgs{x.data(), ones.data(), y.data(), kRows, kDim, 1e-5f}, kRows);
    device()->Multiply({y.data(), w.data(), z.data(), kRows, kDim, kDim, kType, kType, false});
    device()->Launch(norm, RmsNormKernelArgs{z.data(), ones.data(), z.data(), kRows, kDim, 1e-5f}, kRows);
  };
  run();  // Chooses the algorithm of the multiplication.
  const std::vector<uint16_t> untouched = z.Download();
  device()->BeginRecording();
  run();
  const std::unique_ptr<Graph> graph = device()->EndRecording();
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(z.Download(), untouched);
  for (int i = 0; i < 3; ++i) {
    x.Upload(AllBits(random.Normals(x.size()), kType));
    run();
    const std::vector<uint16_t> expected = z.Download();
    z.Upload(std::vector<uint16_t>(z.size()));
    device()->Replay(*graph);
    EXPECT_EQ(z.Download(), expected);
    EXPECT_NE(expected, untouched);
  }
}

}  // namespace
}  // namespace quire::cuda
