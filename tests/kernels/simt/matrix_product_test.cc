// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/simt/matrix_product.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/half_float.h"
#include "kernels/simt/launch.h"

namespace quire::simt {
namespace {

std::vector<uint16_t> RandomBf16(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = ToBFloat16(normal(random)).bits;
  return values;
}

struct Operands {
  int m, n, k;
  std::vector<uint16_t> a = RandomBf16(size_t(m) * k, 1);
  std::vector<uint16_t> b = RandomBf16(size_t(k) * n, 2);
};

struct Result {
  LaunchReport report;
  std::vector<float> c;
};

template <Mistake kMistake>
Result Multiply(const Operands& operands, uint64_t seed = 1, CopyLanding landing = CopyLanding::kLate) {
  const auto tiles = [](int size) { return (size + kTile - 1) / kTile; };
  Result result;
  result.c.assign(size_t(operands.m) * operands.n, NAN);
  const MatrixProductArgs args = {operands.a.data(), operands.b.data(), result.c.data(),
                                  operands.m,        operands.n,        operands.k};
  LaunchConfig config = {.num_blocks = tiles(operands.m) * tiles(operands.n),
                         .num_threads = kProductThreads,
                         .shared_bytes = kProductSharedBytes,
                         .buffers = {ReadOnlyBuffer("a", operands.a.data(), operands.a.size()),
                                     ReadOnlyBuffer("b", operands.b.data(), operands.b.size()),
                                     WritableBuffer("c", result.c.data(), result.c.size())},
                         .seed = seed,
                         .landing = landing};
  result.report = Launch(config, [&] { MatrixProduct<kMistake>(args); });
  return result;
}

// Returns the largest error of an element, relative to the sum of the magnitudes of its products.
double LargestError(const Operands& operands, const std::vector<float>& c) {
  double largest = 0;
  for (int row = 0; row < operands.m; ++row) {
    for (int column = 0; column < operands.n; ++column) {
      double sum = 0;
      double magnitude = 0;
      for (int k = 0; k < operands.k; ++k) {
        const double product = double(ToFloat(BFloat16{operands.a[size_t(row) * operands.k + k]})) *
                               ToFloat(BFloat16{operands.b[size_t(k) * operands.n + column]});
        sum += product;
        magnitude += std::abs(product);
      }
      const double error = std::abs(c[size_t(row) * operands.n + column] - sum) / magnitude;
      largest = error <= largest ? largest : error;  // A NaN is kept.
    }
  }
  return largest;
}

TEST(MatrixProductTest, AgreesWithDoublesForOddSizesSeedsAndLandings) {
  const Operands all_operands[] = {{64, 64, 64}, {70, 72, 200}, {1, 8, 8}, {130, 200, 328}};
  for (const Operands& operands : all_operands) {
    std::vector<float> first;
    for (const uint64_t seed : {1, 2, 3}) {
      for (const CopyLanding landing : {CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom}) {
        SCOPED_TRACE(testing::Message() << operands.m << " x " << operands.n << " x " << operands.k << ", seed " << seed
                                        << ", landing " << int(landing));
        const Result result = Multiply<Mistake::kNone>(operands, seed, landing);
        EXPECT_TRUE(result.report.ok()) << result.report.ToString();
        if (first.empty()) {
          first = result.c;
          EXPECT_LT(LargestError(operands, first), 1e-6);
        }
        EXPECT_EQ(result.c, first);
      }
    }
  }
}

TEST(MatrixProductTest, CountsWhatItDoes) {
  const Result result = Multiply<Mistake::kNone>({128, 64, 128});
  const LaunchCounters& counters = result.report.counters;
  // Two tiles of 64 x 64 x 128: each warp has 8 steps of k, each with 1 + 4 ldmatrix and 8 mma.
  EXPECT_EQ(counters.load_matrix, 2 * 4 * 8 * 5);
  EXPECT_EQ(counters.mma, 2 * 4 * 8 * 8);
  EXPECT_EQ(counters.block_barriers, 2 * 2);
  EXPECT_EQ(counters.async_copies, 2 * 2 * 2 * kTileBytes / 16);
  EXPECT_EQ(counters.global_bytes_read, 2 * 2 * 2 * kTileBytes);
  EXPECT_EQ(counters.global_bytes_written, 128 * 64 * 4);
  EXPECT_EQ(counters.load_matrix_conflicts, 0);
}

TEST(MatrixProductTest, RowsInTheSameBanksAreCounted) {
  const Operands operands = {64, 64, 128};
  const Result result = Multiply<Mistake::kNoSwizzle>(operands);
  EXPECT_TRUE(result.report.ok()) << result.report.ToString();
  EXPECT_LT(LargestError(operands, result.c), 1e-6);
  // All eight rows of each of the four matrices begin in the same bank.
  EXPECT_EQ(result.report.counters.load_matrix_conflicts, result.report.counters.load_matrix * 4 * 7);
}

TEST(MatrixProductTest, PlantedMistakesAreFoundInEveryLanding) {
  const Operands operands = {64, 64, 256};
  for (const CopyLanding landing : {CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom}) {
    SCOPED_TRACE(int(landing));
    EXPECT_TRUE(Multiply<Mistake::kWaitForOneGroupTooFew>(operands, 1, landing).report.Has(ProblemKind::kSharedRace));
    EXPECT_TRUE(Multiply<Mistake::kNoBarrierAfterTheWait>(operands, 1, landing).report.Has(ProblemKind::kSharedRace));
    EXPECT_TRUE(Multiply<Mistake::kRefillTheTileInUse>(operands, 1, landing).report.Has(ProblemKind::kSharedRace));
    EXPECT_TRUE(
        Multiply<Mistake::kRowsBeyondTheEnd>({60, 64, 64}, 1, landing).report.Has(ProblemKind::kGlobalOutOfBounds));
  }
}

TEST(MatrixProductTest, WaitingTooLittleSpoilsTheResultWhenCopiesLandLate) {
  const Operands operands = {64, 64, 256};
  EXPECT_FALSE(LargestError(operands, Multiply<Mistake::kWaitForOneGroupTooFew>(operands).c) < 1e-6);
}

}  // namespace
}  // namespace quire::simt
