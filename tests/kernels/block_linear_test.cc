// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

using reference::BlockLinear;
using reference::BlockMatrix;

constexpr BlockType kTypes[] = {BlockType::kQ8_0, BlockType::kQ4_K,   BlockType::kQ5_K,
                                BlockType::kQ6_K, BlockType::kIQ4_NL, BlockType::kMXFP4};

const char* TypeName(BlockType type) {
  constexpr const char* kNames[] = {"q8_0", "q4_k", "q5_k", "q6_k", "iq4_nl", "mxfp4"};
  return kNames[int(type)];
}

// Every bit of the blocks is random, except in the scales, which are small numbers of both signs, or powers of two.
BlockMatrix RandomMatrix(BlockType type, int rows, int cols, Random* random) {
  const BlockShape shape = ShapeOf(type);
  BlockMatrix w = {.type = type, .blocks = {}, .rows = rows, .cols = cols};
  w.blocks.resize(size_t(rows) * size_t(cols / shape.columns * shape.bytes));
  for (uint8_t& byte : w.blocks) byte = uint8_t(random->Int(0, 255));
  for (size_t at = 0; at < w.blocks.size(); at += size_t(shape.bytes)) {
    const auto scale = [&] { return float(random->Int(-1000, 1000)) * 1e-5f; };
    const float minimum = shape.has_minima ? scale() : 0;
    SetBlockScale(type, scale(), minimum, &w.blocks[at]);
  }
  ReadBlocks(&w);
  return w;
}

BlockMatrixView View(const BlockMatrix& w, int first_row, int rows) {
  const size_t row_bytes = w.blocks.size() / size_t(w.rows);
  return {.blocks = &w.blocks[size_t(first_row) * row_bytes],
          .rows = rows,
          .cols = w.cols,
          .type = w.type,
          .num_slices = w.num_slices};
}

std::unique_ptr<PackedMatrix> Pack(Backend* backend, const BlockMatrix& w) {
  const BlockMatrixView view = View(w, 0, w.rows);
  return backend->PackBlocks(&view, 1);
}

class BlockLinearTest : public testing::TestWithParam<std::tuple<cpu::Isa, BlockType>> {
 protected:
  static cpu::Isa isa() { return std::get<0>(GetParam()); }
  static BlockType type() { return std::get<1>(GetParam()); }
  static int step() { return ShapeOf(type()).columns; }
  static std::unique_ptr<Backend> MakeBackend(int num_threads = 1) { return cpu::MakeCpuBackend(num_threads, isa()); }
};

TEST_P(BlockLinearTest, TheBackendWantsBlocksWhereTheyAreNotSlower) {
  EXPECT_EQ(MakeBackend()->MultipliesBlocks(), isa() != cpu::Isa::kAmx);
}

// Every number in every place of a block, in products that show it: inputs of 127 and 0 are whole numbers as they are.
// Once for one row, and once for rows that share what is unpacked.
TEST_P(BlockLinearTest, EveryNumberCountsWithItsScaleAndMinimum) {
  const auto backend = MakeBackend();
  Random random(1);
  const int rows = 40, cols = 256;
  const BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
  const auto packed = Pack(backend.get(), w);
  for (const int num_tokens : {1, 64}) {
    for (int first = 0; first < cols; first += num_tokens) {
      std::vector<float> x(size_t(num_tokens) * cols);
      for (int token = 0; token < num_tokens; ++token) x[size_t(token) * cols + size_t(first + token)] = 127;
      const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
      for (int i = 0; i < num_tokens * rows; ++i) {
        const int k = first + i / rows, n = i % rows;
        const size_t at = size_t(n * w.num_groups() + k / w.group), block = size_t(n * (cols / step()) + k / step());
        float expected = float(127 * w.small_scales[at] * w.numbers[size_t(n * cols + k)]) * w.scales[block];
        if (!w.minima.empty()) expected -= float(127 * w.small_minima[at]) * w.minima[block];
        ASSERT_EQ(y[size_t(i)], expected) << "row " << n << ", column " << k;
      }
    }
  }
}

TEST_P(BlockLinearTest, BitsAreThoseOfTheFormula) {
  const auto backend = MakeBackend();
  Random random(2);
  for (int i = 0; i < 24; ++i) {
    const int num_tokens = i < 14 ? i + 1 : random.Int(1, 70), cols = step() * random.Int(1, 3);
    const int rows = random.Int(1, 150);
    const std::vector<float> x = random.Normals(size_t(num_tokens) * size_t(cols), i % 5 == 0 ? 1e-6f : 3);
    const BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
    const auto packed = Pack(backend.get(), w);
    ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)), Bits(BlockLinear(x, w)))
        << num_tokens << " x " << cols << " x " << rows;
  }
}

// The largest sums that the inputs and the numbers of a type can have fit into the integers that instructions add.
TEST_P(BlockLinearTest, TheLargestSumsAreExact) {
  const auto backend = MakeBackend();
  const int cols = 512, rows = 33, num_tokens = 13;
  for (const int byte : {0xff, 0x00, 0x80, 0x7f, 0xf0, 0x0f}) {
    BlockMatrix w = {.type = type(), .blocks = {}, .rows = rows, .cols = cols};
    w.blocks.assign(size_t(rows) * size_t(cols / step() * ShapeOf(type()).bytes), uint8_t(byte));
    for (size_t at = 0; at < w.blocks.size(); at += size_t(ShapeOf(type()).bytes)) {
      SetBlockScale(type(), /*scale=*/1, /*minimum=*/1, &w.blocks[at]);
    }
    ReadBlocks(&w);
    const auto packed = Pack(backend.get(), w);
    std::vector<float> x(size_t(num_tokens) * cols, 1);
    for (int k = 0; k < cols; ++k) x[size_t(cols + k)] = -1;
    for (int k = 0; k < cols; k += 2) x[size_t(2 * cols + k)] = -1;
    EXPECT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)), Bits(BlockLinear(x, w))) << byte;
  }
}

TEST_P(BlockLinearTest, ARowThatIsNotFiniteSpoilsNoOther) {
  const auto backend = MakeBackend();
  Random random(4);
  const int cols = 512, rows = 50, num_tokens = 9;
  std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
  const BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
  const auto packed = Pack(backend.get(), w);
  std::fill_n(&x[2 * cols], cols, 0.0f);
  std::fill_n(&x[3 * cols], cols, 1e-35f);
  const std::vector<float> expected = BlockLinear(x, w);
  x[4 * cols + 300] = std::numeric_limits<float>::infinity();
  x[7 * cols + 511] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = Multiply(backend.get(), x, *packed, cols, rows);
  for (int i = 0; i < num_tokens * rows; ++i) {
    const int token = i / rows;
    if (token == 4 || token == 7) {
      EXPECT_TRUE(std::isnan(y[size_t(i)]));
    } else {
      EXPECT_EQ(y[size_t(i)], expected[size_t(i)]);
    }
    if (token == 2 || token == 3) {
      EXPECT_EQ(y[size_t(i)], 0);
    }
  }
}

// Alone and in company, because they add slices in different memory.
TEST_P(BlockLinearTest, SlicesAreAddedAsATree) {
  const auto backend = MakeBackend();
  Random random(7);
  const int rows = 50, cols = 2048, num_tokens = 14;
  const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
  BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
  std::vector<float> unsliced = BlockLinear(x, w);
  for (const int num_slices : {2, 4, 8}) {
    w.num_slices = num_slices;
    const auto packed = Pack(backend.get(), w);
    const std::vector<float> expected = BlockLinear(x, w);
    EXPECT_NE(expected, unsliced);
    EXPECT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)), Bits(expected));
    const std::vector<float> first(x.begin(), x.begin() + cols);
    EXPECT_EQ(Multiply(backend.get(), first, *packed, cols, rows),
              std::vector<float>(expected.begin(), expected.begin() + rows));
  }
}

TEST_P(BlockLinearTest, ARowDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int cols = 512, rows = 130, max_tokens = 205;
  const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
  const BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
  const std::vector<float> expected = BlockLinear(x, w);
  for (const int num_threads : {1, 3}) {
    const auto backend = MakeBackend(num_threads);
    const auto packed = Pack(backend.get(), w);
    for (const int num_tokens : {1, 2, 3, 7, 12, 13, 25, 64, max_tokens}) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      EXPECT_EQ(Multiply(backend.get(), first, *packed, cols, rows),
                std::vector<float>(expected.begin(), expected.begin() + num_tokens * rows))
          << num_tokens << " tokens, " << num_threads << " threads";
    }
  }
}

// The types of a stack may differ, as Q, K and V do in many files.
TEST_P(BlockLinearTest, AStackOfSeveralTypesAddsBiasAndResidualInPlace) {
  const auto backend = MakeBackend();
  Random random(5);
  const int cols = 256;
  const BlockMatrix own = RandomMatrix(type(), 70, cols, &random);
  for (const BlockType other_type : kTypes) {
    const BlockMatrix other = RandomMatrix(other_type, 41, cols, &random);
    const BlockMatrixView parts[] = {View(own, 0, 1), View(own, 1, 69), View(other, 0, 41)};
    const auto packed = backend->PackBlocks(parts, 3);
    for (const int num_tokens : {1, 5, 37}) {
      const std::vector<float> x = random.Normals(size_t(num_tokens) * cols), bias = random.Normals(111);
      const std::vector<float> left = BlockLinear(x, own), right = BlockLinear(x, other);
      std::vector<float> product;
      for (int token = 0; token < num_tokens; ++token) {
        product.insert(product.end(), left.begin() + token * 70, left.begin() + (token + 1) * 70);
        product.insert(product.end(), right.begin() + token * 41, right.begin() + (token + 1) * 41);
      }
      ExpectBiasAndResidualInPlace(backend.get(), x, *packed, bias, random.Normals(num_tokens * 111), product);
    }
  }
}

TEST_P(BlockLinearTest, AGatedProductIsTheProductOfItsHalves) {
  const auto backend = MakeBackend();
  Random random(6);
  const int cols = 256, dim = 75;
  const BlockMatrix w = RandomMatrix(type(), 2 * dim, cols, &random);
  const auto packed = backend->PackGatedBlocks(View(w, 0, dim), View(w, dim, dim));
  for (const int num_tokens : {9, 30}) {
    const std::vector<float> x = random.Normals(size_t(num_tokens) * cols, 0.01f);
    ExpectGatedProduct(backend.get(), x, *packed, dim, /*bias=*/{}, BlockLinear(x, w));
  }
}

TEST_P(BlockLinearTest, AnEmbeddingReadsItsRowsFromTheBlocks) {
  const auto backend = MakeBackend();
  Random random(8);
  const int cols = 512, rows = 77;
  const BlockMatrix w = RandomMatrix(type(), rows, cols, &random);
  const auto packed = Pack(backend.get(), w);
  const std::vector<int32_t> tokens = {0, 15, 16, 31, 32, 76};
  std::vector<float> y(tokens.size() * cols);
  backend->Embed(*packed, tokens.data(), int(tokens.size()), 1, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const int n = tokens[i / cols], k = int(i % cols);
    ASSERT_EQ(y[i], w.Weight(n, k)) << "row " << n << ", column " << k;
  }
}

// Scales of all sizes, down to numbers of float32 without all of their bits.
TEST(Mxfp4Test, EveryScaleIsAPowerOfTwo) {
  const auto backend = cpu::MakeCpuBackend(1, cpu::SupportedIsas().front());
  const int rows = kMaxMXFP4Scale + 1, cols = 32;
  BlockMatrix w = {.type = BlockType::kMXFP4, .blocks = {}, .rows = rows, .cols = cols};
  for (int scale = 0; scale < rows; ++scale) {
    w.blocks.push_back(uint8_t(scale));
    for (int i = 0; i < cols / 2; ++i) w.blocks.push_back(uint8_t(i | 7 << 4));
  }
  const auto packed = Pack(backend.get(), w);
  std::vector<int32_t> tokens(rows);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::vector<float> y(size_t(rows) * cols);
  backend->Embed(*packed, tokens.data(), rows, 1, y.data());
  constexpr double kNumbers[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  for (int scale = 0; scale < rows; ++scale) {
    for (int k = 0; k < cols; ++k) {
      const double number = kNumbers[k < cols / 2 ? k : 7];
      ASSERT_EQ(y[size_t(scale * cols + k)], float(std::ldexp(number, scale - 127))) << scale << ", column " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, BlockLinearTest,
                         testing::Combine(testing::ValuesIn(TestedIsas()), testing::ValuesIn(kTypes)),
                         [](const testing::TestParamInfo<std::tuple<cpu::Isa, BlockType>>& info) {
                           return std::string(cpu::Name(std::get<0>(info.param))) + "_" +
                                  TypeName(std::get<1>(info.param));
                         });

}  // namespace
}  // namespace quire
