// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/reference/dense.h"
#include "kernels/reference/quantized.h"
#include "tests/kernels/kernel_test_util.h"

namespace quire {
namespace {

TEST(NumSlicesTest, SlicesAreWholeTilesHeadsAndGroupsAndLongEnough) {
  const struct {
    int cols, unit, group, expected;
  } cases[] = {
      {4096, 128, 0, 8},    // Llama 3.1 8B: output of attention, 8 x 512.
      {4096, 128, 128, 8},  //
      {14336, 1, 0, 8},     // And of the MLP, 8 x 1792, which are 14 groups.
      {14336, 1, 128, 8},   //
      {28672, 1, 128, 8},   // Llama 3.1 70B.
      {896, 64, 0, 1},      // Qwen 2.5 0.5B: 2 x 448 is too short.
      {4864, 1, 0, 8},      // 8 x 608 are 19 tiles each.
      {4864, 1, 32, 8},     //
      {4864, 1, 64, 4},     // 608 is no whole number of groups.
      {4864, 1, 128, 2},    // Nor is 1216.
      {1536, 64, 0, 2},     // 4 x 384 is too short.
      {9728, 1, 0, 8},      // Qwen 3 4B: 8 x 1216.
      {9728, 1, 128, 4},    //
      {3072, 1, 0, 4},      // 4 x 768.
      {2048, 128, 0, 4},    //
      {2048, 1024, 0, 2},   // Two heads.
      {2048, 96, 0, 1},     // Heads that do not divide the slices.
      {1056, 1, 0, 1},      // 2 x 528 are no whole tiles.
      {1024, 1, 1024, 1},   // One group.
      {511, 1, 0, 1},      {1, 1, 0, 1},
  };
  for (const auto& [cols, unit, group, expected] : cases) {
    EXPECT_EQ(NumSlices(cols, unit, group), expected) << cols << " by " << unit << " in groups of " << group;
  }
}

// A matrix in one of the forms that backends multiply.
class Weights {
 public:
  static constexpr int kNumKinds = 7;

  // The kinds are the values of DataType and then the quantized formats with groups.
  Weights(int kind, int rows, int cols, int group, Random* random)
      : kind_(kind), rows_(rows), cols_(cols), group_(group), num_groups_(cols / group) {
    if (is_plain()) {
      plain_ = Rounded(random->Normals(size_t(rows) * cols), type());
      return;
    }
    numbers_.resize(size_t(rows) * cols);
    for (int8_t& number : numbers_) {
      number = int8_t(is_fp8() ? random->Int(0, 126) | random->Int(0, 1) << 7 : random->Int(0, 15));
    }
    scales_ = random->Normals(size_t(rows) * num_groups_, 0.1f);
    zeros_.resize(scales_.size());
    for (uint8_t& zero : zeros_) zero = uint8_t(random->Int(0, 16));
  }

  std::string name() const {
    const std::string names[] = {"float32",         "bfloat16", "float16",         "int4",
                                 "int4 by float32", "fp8",      "int4 by bfloat16"};
    return names[kind_];
  }
  bool is_plain() const { return kind_ < 3; }
  bool is_fp8() const { return kind_ == 5; }
  DataType type() const { return DataType(kind_); }

  // Packs the columns [begin, begin + cols), which are whole groups.
  std::unique_ptr<PackedMatrix> Pack(Backend* backend, int begin, int cols, int num_slices) const {
    if (is_plain()) {
      const std::vector<char> bytes = Encoded(Columns(plain_, cols_, begin, cols), type());
      const MatrixView view = {bytes.data(), rows_, cols, type(), num_slices};
      return backend->Pack(&view, 1);
    }
    const auto numbers = Columns(numbers_, cols_, begin, cols);
    const auto scales = Columns(scales_, num_groups_, begin / group_, cols / group_);
    const auto zeros = Columns(zeros_, num_groups_, begin / group_, cols / group_);
    const QuantizedMatrixView view = {.values = numbers.data(),
                                      .scales = scales.data(),
                                      .rows = rows_,
                                      .cols = cols,
                                      .format = format(),
                                      .group = group_,
                                      .zeros = zeros.data(),
                                      .num_slices = num_slices};
    return backend->PackQuantized(&view, 1);
  }

  // The scalar formula, for products whose sums are of float32.
  std::vector<float> Product(const std::vector<float>& x, int num_slices, bool is_fused) const {
    if (is_plain()) return reference::SlicedLinear(x, plain_, cols_, num_slices, is_fused);
    if (is_fp8()) return reference::Fp8Linear(x, {numbers_, scales_, rows_, cols_, group_, num_slices}, is_fused);
    const reference::Int4Matrix w = Int4(num_slices);
    return kind_ == 3 ? reference::Int4Linear(x, w) : reference::Int4FloatLinear(x, w, is_fused);
  }
  // REQUIRES: a kind of int4.
  reference::Int4Matrix Int4(int num_slices) const {
    return {numbers_, scales_, zeros_, rows_, cols_, group_, num_slices};
  }

  // Some columns of a matrix.
  template <typename T>
  static std::vector<T> Columns(const std::vector<T>& matrix, int stride, int begin, int count) {
    std::vector<T> columns;
    for (auto row = matrix.begin(); row != matrix.end(); row += stride) {
      columns.insert(columns.end(), row + begin, row + begin + count);
    }
    return columns;
  }

 private:
  QuantizedFormat format() const {
    return is_fp8()     ? QuantizedFormat::kFp8
           : kind_ == 3 ? QuantizedFormat::kInt4
           : kind_ == 4 ? QuantizedFormat::kInt4Float32
                        : QuantizedFormat::kInt4BFloat16;
  }

  int kind_, rows_, cols_, group_, num_groups_;
  std::vector<float> plain_;
  std::vector<int8_t> numbers_;
  std::vector<float> scales_;
  std::vector<uint8_t> zeros_;
};

using LinearSlicesTest = CpuBackendTest;

// Numbers of rows for which the kernels differ.
constexpr int kRowClasses[] = {1, 3, 8, 17, 40, 200};

TEST_P(LinearSlicesTest, BitsAreThoseOfTheScalarTree) {
  const auto backend = MakeBackend();
  Random random(1);
  const int rows = 35;
  for (const int num_slices : {1, 2, 4, 8}) {
    for (int kind = 0; kind < Weights::kNumKinds; ++kind) {
      const int cols = num_slices * 64;
      const Weights w(kind, rows, cols, 32, &random);
      const auto packed = w.Pack(backend.get(), 0, cols, num_slices);
      // Pairs of bfloat16 are added in an order of their own.
      if (backend->InputType(*packed) == DataType::kBFloat16) continue;
      for (const int num_tokens : kRowClasses) {
        const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
        ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)),
                  Bits(w.Product(x, num_slices, GetParam() != cpu::Isa::kGeneric)))
            << w.name() << ", " << num_slices << " slices, " << num_tokens << " tokens";
      }
    }
  }
}

// With tiles, a matrix of int4 has the product of a matrix of bfloat16 with the same weights.
TEST_P(LinearSlicesTest, Int4ByBFloat16HasTheBitsOfBFloat16) {
  const auto backend = MakeBackend();
  Random random(6);
  const int rows = 35;
  const struct { int num_slices, slice_cols, group; } shapes[] = {{2, 1152, 64}, {4, 128, 128}, {8, 544, 32}};
  for (const auto& [num_slices, slice_cols, group] : shapes) {
    const int cols = num_slices * slice_cols;
    const Weights w(/*kind=*/6, rows, cols, group, &random);
    const auto packed = w.Pack(backend.get(), 0, cols, num_slices);
    if (GetParam() != cpu::Isa::kAmx) GTEST_SKIP() << "Has no tiles.";
    const std::vector<BFloat16> weights = reference::Int4AsBFloat16(w.Int4(num_slices));
    const MatrixView view = {weights.data(), rows, cols, DataType::kBFloat16, num_slices};
    const auto plain = backend->Pack(&view, 1);
    for (const int num_tokens : kRowClasses) {
      const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
      ASSERT_EQ(Bits(Multiply(backend.get(), x, *packed, cols, rows)),
                Bits(Multiply(backend.get(), x, *plain, cols, rows)))
          << num_slices << " slices of " << slice_cols << " in groups of " << group << ", " << num_tokens << " tokens";
    }
  }
}

// Multiplies by the columns of each of `num_parts` parts alone, in `slices_per_part` slices, and adds the parts.
std::vector<float> AddParts(Backend* backend, const Weights& w, const std::vector<float>& x, int cols, int rows,
                            int num_parts, int slices_per_part) {
  const int part = cols / num_parts;
  std::vector<std::vector<float>> products;
  for (int begin = 0; begin < cols; begin += part) {
    const auto packed = w.Pack(backend, begin, part, slices_per_part);
    products.push_back(Multiply(backend, Weights::Columns(x, cols, begin, part), *packed, part, rows));
  }
  std::vector<float> y;
  for (size_t i = 0; i < products[0].size(); ++i) {
    std::vector<float> sums;
    for (const std::vector<float>& product : products) sums.push_back(product[i]);
    y.push_back(reference::AddSlices(sums.data(), num_parts));
  }
  return y;
}

// As on several devices, each with the same number of adjacent slices. The slices have one block of k, or blocks of
// different sizes, also of groups.
TEST_P(LinearSlicesTest, PartsOfTheSlicesAddUpToTheWhole) {
  Random random(2);
  const int rows = 40;
  const struct { int num_slices, slice_cols, group; } shapes[] = {{2, 544, 32}, {8, 128, 64}, {4, 640, 128}};
  for (const auto& [num_slices, slice_cols, group] : shapes) {
    for (int kind = 0; kind < Weights::kNumKinds; ++kind) {
      const int cols = num_slices * slice_cols;
      const Weights w(kind, rows, cols, group, &random);
      for (const int num_tokens : kRowClasses) {
        const auto backend = MakeBackend(1 + num_tokens % 3);
        const std::vector<float> x = random.Normals(size_t(num_tokens) * cols);
        const auto packed = w.Pack(backend.get(), 0, cols, num_slices);
        const std::vector<uint32_t> whole = Bits(Multiply(backend.get(), x, *packed, cols, rows));
        for (int num_parts = 2; num_parts <= num_slices; num_parts *= 2) {
          ASSERT_EQ(whole, Bits(AddParts(backend.get(), w, x, cols, rows, num_parts, num_slices / num_parts)))
              << w.name() << ", " << num_slices << " slices of " << slice_cols << ", " << num_tokens << " tokens, "
              << num_parts << " parts";
        }
      }
    }
  }
}

// Expects that the product of a row has the same bits alone, beside others, and with several threads.
// REQUIRES: numbers_of_tokens ascend, and the last one is a multiple of 10.
template <typename MakeBackendFn>
void ExpectIndependentRows(const Weights& w, int rows, int cols, const std::vector<float>& x,
                           const std::vector<int>& numbers_of_tokens, MakeBackendFn&& make_backend) {
  const int num_slices = 4, max_tokens = numbers_of_tokens.back();
  std::vector<float> expected;
  for (const int num_threads : {1, 3}) {
    const auto backend = make_backend(num_threads);
    const auto packed = w.Pack(backend.get(), 0, cols, num_slices);
    if (expected.empty()) {
      for (int token = 0; token < max_tokens; token += 10) {
        const std::vector<float> some(x.begin() + token * cols, x.begin() + (token + 10) * cols);
        const std::vector<float> y = Multiply(backend.get(), some, *packed, cols, rows);
        expected.insert(expected.end(), y.begin(), y.end());
      }
    }
    for (const int num_tokens : numbers_of_tokens) {
      const std::vector<float> first(x.begin(), x.begin() + num_tokens * cols);
      const std::vector<float> y = Multiply(backend.get(), first, *packed, cols, rows);
      ASSERT_TRUE(std::equal(y.begin(), y.end(), expected.begin()))
          << w.name() << ", " << num_tokens << " tokens, " << num_threads << " threads";
    }
  }
}

// More rows and panels than an item of work has.
TEST_P(LinearSlicesTest, ARowDoesNotDependOnItsCompanyOrTheThreads) {
  Random random(3);
  const int rows = 300, cols = 2176, max_tokens = 530;  // Slices of 17 tiles.
  for (int kind = 0; kind < Weights::kNumKinds; ++kind) {
    if (GetParam() != cpu::Isa::kAmx && kind % 2 == 0) continue;  // Without tiles, all kinds work in the same way.
    const Weights w(kind, rows, cols, 32, &random);
    const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
    ExpectIndependentRows(w, rows, cols, x, {1, 33, 129, max_tokens}, [&](int n) { return MakeBackend(n); });
  }
}

// Rows of bfloat16 that begin at multiples of 4096 bytes are copied, if there are more than a set of the first-level
// cache holds.
TEST_P(LinearSlicesTest, ARowInSharedCacheSetsDoesNotDependOnItsCompany) {
  Random random(8);
  const int rows = 70, cols = 2048, max_tokens = 40;
  for (int kind = 0; kind < Weights::kNumKinds; ++kind) {
    const Weights w(kind, rows, cols, 32, &random);
    const std::vector<float> x = random.Normals(size_t(max_tokens) * cols);
    ExpectIndependentRows(w, rows, cols, x, {1, 8, 9, 27, max_tokens}, [&](int n) { return MakeBackend(n); });
  }
}

// They are added to the sum of all slices.
TEST_P(LinearSlicesTest, BiasAndResidualComeAfterTheTree) {
  const auto backend = MakeBackend();
  Random random(4);
  const int rows = 70, cols = 512, num_slices = 8;
  for (int kind = 0; kind < Weights::kNumKinds; ++kind) {
    const Weights w(kind, rows, cols, 32, &random);
    const auto packed = w.Pack(backend.get(), 0, cols, num_slices);
    const std::vector<float> bias = random.Normals(rows);
    for (const int num_tokens : {2, 20, 40, 130}) {
      const std::vector<float> x = random.Normals(num_tokens * cols);
      ExpectBiasAndResidualInPlace(backend.get(), x, *packed, bias, random.Normals(num_tokens * rows),
                                   AddParts(backend.get(), w, x, cols, rows, num_slices, 1));
    }
  }
}

// One scale for a row and exact sums: the division cannot change anything.
TEST_P(LinearSlicesTest, Int8IsNotDivided) {
  const auto backend = MakeBackend();
  Random random(5);
  const int rows = 40, cols = 256, num_tokens = 20;
  std::vector<int8_t> values(rows * cols);
  for (int8_t& value : values) value = int8_t(random.Int(-128, 127));
  const std::vector<float> scales = random.Normals(rows), x = random.Normals(num_tokens * cols);
  QuantizedMatrixView view = {.values = values.data(), .scales = scales.data(), .rows = rows, .cols = cols};
  view.num_slices = 4;
  EXPECT_EQ(Multiply(backend.get(), x, *backend->PackQuantized(&view, 1), cols, rows),
            reference::QuantizedLinear(x, values, scales, cols));
}

INSTANTIATE_TEST_SUITE_P(Isas, LinearSlicesTest, testing::ValuesIn(TestedIsas()), IsaName);

}  // namespace
}  // namespace quire
