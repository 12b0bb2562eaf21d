// SPDX-License-Identifier: Apache-2.0

// The functions of simt_sm90.h: barriers in shared memory, bulk copies, and products of warp groups.

#include "kernels/simt/simt_sm90.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/half_float.h"
#include "kernels/simt/launch.h"
#include "tests/kernels/simt/report_test_util.h"

namespace quire::simt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CopyLanding kLandings[] = {CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom};
constexpr int kPanelRows = 128;
constexpr int kPanelBytes = kPanelRows * 128;
constexpr size_t kBarriers = 2 * kPanelBytes;  // Offset of barriers behind two matrices.

uint64_t* BarrierAt(int i) {
  return reinterpret_cast<uint64_t*>(SharedMemory() + kBarriers) + i;
}

// Initialises barriers with these counts.
void InitBarriers(const std::vector<uint32_t>& counts) {
  if (ThreadIndex() == 0) {
    for (size_t i = 0; i < counts.size(); ++i) InitBarrier(BarrierAt(int(i)), counts[i]);
    FenceAsyncProxy();
  }
  SyncBlock();
}

LaunchConfig OneGroup() {
  return {.num_threads = 128, .shared_bytes = kBarriers + 64};
}

// --- Barriers

TEST(SharedBarrierTest, AnArrivalPublishesWhatCameBeforeIt) {
  const auto kernel = [](bool arrives_before) {
    return [=] {
      InitBarriers({1});
      if (WarpIndex() == 0) {
        if (arrives_before && LaneIndex() == 0) ArriveAtBarrier(BarrierAt(0));
        StoreShared(&Words()[LaneIndex()], 7);
        SyncWarp();
        if (!arrives_before && LaneIndex() == 0) ArriveAtBarrier(BarrierAt(0));
      } else if (WarpIndex() == 1) {
        WaitForBarrier(BarrierAt(0), 0);
        EXPECT_TRUE(arrives_before || LoadShared(&Words()[LaneIndex()]) == 7);
        if (arrives_before) LoadShared(&Words()[LaneIndex()]);
      }
    };
  };
  EXPECT_THAT(KindsOf(OneGroup(), kernel(false)), IsEmpty());
  LaunchConfig config = OneGroup();
  bool is_found = false;
  for (config.seed = 1; config.seed <= 5; ++config.seed) {
    is_found |= Launch(config, kernel(true)).Has(ProblemKind::kSharedRace);
  }
  EXPECT_TRUE(is_found);
}

// Two warps read a word, and a third one may write it when both have told it so, whatever the fourth one does.
TEST(SharedBarrierTest, WriteAfterSeveralReadersNeedsTheArrivalsOfAllOfThem) {
  const auto kernel = [](uint32_t arrivals) {
    return [=] {
      if (ThreadIndex() == 0) StoreShared(Words(), 1);
      InitBarriers({arrivals});
      if (WarpIndex() < 2) {
        LoadShared(Words());
        SyncWarp();
        if (WarpIndex() < int(arrivals) && LaneIndex() == 0) ArriveAtBarrier(BarrierAt(0));
      } else if (WarpIndex() == 2) {
        WaitForBarrier(BarrierAt(0), 0);
        if (LaneIndex() == 0) StoreShared(Words(), 2);
      }
    };
  };
  LaunchConfig config = OneGroup();
  for (config.seed = 1; config.seed <= 10; ++config.seed) {
    EXPECT_THAT(Kinds(Launch(config, kernel(2))), IsEmpty());
    EXPECT_THAT(Kinds(Launch(config, kernel(1))), ElementsAre(ProblemKind::kSharedRace)) << "seed " << config.seed;
  }
}

// Two warps hand a word to each other ten times.
TEST(SharedBarrierTest, PhasesAlternate) {
  EXPECT_THAT(KindsOf(OneGroup(),
                      [] {
                        InitBarriers({1, 1});
                        for (int i = 0; i < 10; ++i) {
                          const uint32_t parity = i & 1;
                          if (WarpIndex() == 0) {
                            WaitForBarrier(BarrierAt(1), parity ^ 1);
                            if (LaneIndex() == 0) StoreShared(Words(), i);
                            SyncWarp();
                            if (LaneIndex() == 0) ArriveAtBarrier(BarrierAt(0));
                          } else if (WarpIndex() == 1) {
                            WaitForBarrier(BarrierAt(0), parity);
                            EXPECT_EQ(LoadShared(Words()), uint32_t(i));
                            SyncWarp();
                            if (LaneIndex() == 0) ArriveAtBarrier(BarrierAt(1));
                          }
                        }
                      }),
              IsEmpty());
}

TEST(SharedBarrierTest, MissingArrivalsAreADeadlock) {
  ExpectAlways(ProblemKind::kDeadlock, OneGroup(), [] {
    InitBarriers({2});
    if (ThreadIndex() == 0) ArriveAtBarrier(BarrierAt(0));
    WaitForBarrier(BarrierAt(0), 0);
  });
}

TEST(SharedBarrierTest, MisuseIsReported) {
  ExpectAlways(ProblemKind::kBarrierMisuse, OneGroup(), [] {
    InitBarriers({1});
    if (ThreadIndex() == 0) ArriveAtBarrier(BarrierAt(1));
  });
  ExpectAlways(ProblemKind::kBarrierMisuse, OneGroup(), [] {
    InitBarriers({1});
    if (ThreadIndex() != 0) return;
    ArriveAndAnnounce(BarrierAt(0), 16);
    ArriveAtBarrier(BarrierAt(0));
  });
  ExpectAlways(ProblemKind::kSharedRace, OneGroup(), [] {
    if (ThreadIndex() == 0) InitBarrier(BarrierAt(0), 128);
    if (ThreadIndex() == 127) ArriveAtBarrier(BarrierAt(0));  // No SyncBlock.
  });
}

TEST(WarpGroupTest, SyncWarpGroupOrdersTheGroup) {
  const auto kernel = [](int distance) {
    return [=] {
      StoreShared(&Words()[ThreadIndex()], ThreadIndex());
      SyncWarpGroup();
      LoadShared(&Words()[ThreadIndex() ^ distance]);
    };
  };
  const LaunchConfig two_groups = {.num_threads = 256, .shared_bytes = 1024};
  EXPECT_THAT(KindsOf(two_groups, kernel(64)), IsEmpty());
  EXPECT_TRUE(Launch(two_groups, kernel(128)).Has(ProblemKind::kSharedRace));
}

// --- Bulk copies

struct CopyCase {
  uint32_t announced = 512;
  bool waits = true;
  size_t distance = 0;  // Of the target from the start of shared memory.
};

// One warp copies 512 bytes, which another one reads.
LaunchReport RunCopy(const CopyCase& c, CopyLanding landing, uint64_t seed) {
  std::vector<uint32_t> from(128);
  for (size_t i = 0; i < from.size(); ++i) from[i] = uint32_t(3 * i);
  LaunchConfig config = OneGroup();
  config.buffers = {ReadOnlyBuffer("from", from.data(), from.size())};
  config.landing = landing;
  config.seed = seed;
  return Launch(config, [&] {
    InitBarriers({1});
    char* const to = SharedMemory() + c.distance;
    if (WarpIndex() == 0) {
      if (LaneIndex() == 0) ArriveAndAnnounce(BarrierAt(0), c.announced);
      SyncWarp();
      if (LaneIndex() < 2) CopyBulk(to + 256 * LaneIndex(), &from[64 * LaneIndex()], 256, BarrierAt(0));
    } else if (WarpIndex() == 1) {
      if (c.waits) WaitForBarrier(BarrierAt(0), 0);
      for (int i = LaneIndex(); i < 128; i += kWarpSize) {
        const uint32_t value = LoadShared(reinterpret_cast<uint32_t*>(to) + i);
        if (c.waits && c.announced == 512) {
          EXPECT_EQ(value, 3u * i);
        }
      }
    }
  });
}

TEST(BulkCopyTest, CopiesLandBeforeThePhaseEnds) {
  for (const CopyLanding landing : kLandings) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const LaunchReport report = RunCopy({}, landing, seed);
      EXPECT_TRUE(report.ok()) << report.ToString();
      EXPECT_EQ(report.counters.bulk_copies, 2);
    }
  }
}

TEST(BulkCopyTest, ReadsThatDoNotWaitAreReported) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const LaunchReport report = RunCopy({.waits = false}, CopyLanding::kLate, seed);
    EXPECT_TRUE(report.Has(ProblemKind::kSharedRace) || report.Has(ProblemKind::kUninitializedRead));
    EXPECT_TRUE(report.Has(ProblemKind::kUnwaitedCopies)) << report.ToString();
  }
}

TEST(BulkCopyTest, TooFewAnnouncedBytesAreReported) {
  EXPECT_TRUE(RunCopy({.announced = 256}, CopyLanding::kLate, 1).Has(ProblemKind::kSharedRace));
  EXPECT_TRUE(RunCopy({.announced = 768}, CopyLanding::kLate, 1).Has(ProblemKind::kDeadlock));
}

TEST(BulkCopyTest, MisalignedTargetsAreReported) {
  EXPECT_TRUE(RunCopy({.distance = 8}, CopyLanding::kLate, 1).Has(ProblemKind::kMisaligned));
}

// --- Products

// A matrix of [rows][128] elements, as float and as bits in two panels with the permutation.
struct Matrix {
  Matrix(int rows, MmaType type, uint64_t seed) : values(rows * 128), bits(2 * kPanelRows * 64, 0x7fff) {
    std::mt19937_64 random(seed);
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < 128; ++column) {
        const float value = float(int(random() % 17) - 8) / 4;
        values[row * 128 + column] = value;
        const int place = column % 64 / 8 ^ row % 8;
        bits[column / 64 * kPanelRows * 64 + row * 64 + place * 8 + column % 8] =
            type == MmaType::kBf16 ? ToBFloat16(value).bits : ToFloat16(value).bits;
      }
    }
  }
  float At(int row, int column) const { return values[row * 128 + column]; }

  std::vector<float> values;
  std::vector<uint16_t> bits;
};

// Stores both panels.
void StoreMatrix(const Matrix& matrix, char* to) {
  for (int i = ThreadIndex(); i < int(matrix.bits.size()); i += BlockSize()) {
    StoreShared(reinterpret_cast<uint16_t*>(to) + i, matrix.bits[i]);
  }
}

// Calls check(row, column, value) for the 64 x 2 N values of a warp group's accumulators.
template <int kRows, typename Check>
void ForEachValue(const float (&d)[kRows][4], const Check& check) {
  for (int i = 0; i < 4 * kRows; ++i) {
    check(WarpIndex() * 16 + LaneIndex() / 4 + i % 4 / 2 * 8, i / 4 * 8 + LaneIndex() % 4 * 2 + i % 2, d[i / 4][i % 4]);
  }
}

TEST(ProductTest, ProductsOfSharedMatricesAreRight) {
  for (const MmaType type : {MmaType::kBf16, MmaType::kF16}) {
    const Matrix a(64, type, 1), b(128, type, 2);
    for (const CopyLanding landing : kLandings) {
      LaunchConfig config = {.num_threads = 128, .shared_bytes = 4 * kPanelBytes, .landing = landing};
      const LaunchReport report = Launch(config, [&] {
        StoreMatrix(a, SharedMemory());
        StoreMatrix(b, SharedMemory() + 2 * kPanelBytes);
        FenceAsyncProxy();
        SyncBlock();
        float d[16][4];
        const uint64_t first = MatrixDescriptor(SharedMemory(), kPanelBytes);
        const uint64_t second = MatrixDescriptor(SharedMemory() + 2 * kPanelBytes, kPanelBytes);
        BeginProducts(d);
        for (const int column : {16, 48}) {
          const uint64_t x = AtColumn(AtRow(first, kPanelRows), column),
                         y = AtColumn(AtRow(second, kPanelRows), column);
          if (type == MmaType::kBf16) {
            MultiplyBf16(d, x, y, column != 16);
          } else {
            MultiplyF16(d, x, y, column != 16);
          }
        }
        CommitProducts();
        WaitForProducts(d);
        ForEachValue(d, [&](int row, int column, float value) {
          float expected = 0;
          for (const int k : {80, 112}) {  // The same columns in the second panel.
            for (int i = 0; i < 16; ++i) expected += a.At(row, k + i) * b.At(column, k + i);
          }
          EXPECT_EQ(value, expected) << row << ", " << column;
        });
      });
      EXPECT_TRUE(report.ok()) << report.ToString();
      EXPECT_EQ(report.counters.group_products, 2);
    }
  }
}

template <int kRows>
void ExpectProductsOfRows(MmaType type) {
  const Matrix a(64, type, 3), b(128, type, 4);
  const LaunchReport report = Launch({.num_threads = 128, .shared_bytes = 2 * kPanelBytes}, [&] {
    StoreMatrix(b, SharedMemory());
    FenceAsyncProxy();
    SyncBlock();
    uint32_t rows[4];
    for (int i = 0; i < 4; ++i) {
      const int row = WarpIndex() * 16 + LaneIndex() / 4 + i % 2 * 8, column = LaneIndex() % 4 * 2 + i / 2 * 8;
      rows[i] = type == MmaType::kBf16 ? PackBf16(a.At(row, column), a.At(row, column + 1))
                                       : PackF16(a.At(row, column), a.At(row, column + 1));
    }
    float d[kRows][4];
    for (float(&four)[4] : d) {
      for (float& value : four) value = 100;
    }
    const uint64_t from_row_32 = AtRow(MatrixDescriptor(SharedMemory(), kPanelBytes), 32);
    BeginProducts(d);
    if (type == MmaType::kBf16) {
      MultiplyRowsBf16(d, rows, from_row_32);
    } else {
      MultiplyRowsF16(d, rows, from_row_32);
    }
    EXPECT_TRUE(std::isnan(d[0][0])) << "the values are not there before the wait";
    CommitProducts();
    WaitForProducts(d);
    ForEachValue(d, [&](int row, int column, float value) {
      float expected = 0;
      for (int k = 0; k < 16; ++k) expected += a.At(row, k) * b.At(32 + k, column);
      EXPECT_EQ(value, 100 + expected) << row << ", " << column;
    });
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

TEST(ProductTest, ProductsOfRowsInRegistersAreRight) {
  for (const MmaType type : {MmaType::kBf16, MmaType::kF16}) {
    ExpectProductsOfRows<8>(type);   // 64 columns.
    ExpectProductsOfRows<16>(type);  // 128 columns.
  }
}

// What a kernel with one product leaves out.
struct Left {
  bool fence_of_stores = false;
  bool begin = false;
  bool commit = false;
  bool wait = false;
  int arrivals = 0;
};

// The second warp group of a block multiplies what it has stored. Then the first one stores over it.
std::vector<ProblemKind> KindsWithout(const Left& left, CopyLanding landing) {
  const LaunchConfig config = {.num_threads = 256, .shared_bytes = kBarriers + 64, .landing = landing};
  return KindsOf(config, [&] {
    InitBarriers({uint32_t(4 - left.arrivals)});
    if (WarpIndex() < 4) {
      if (WarpIndex() > 0) return;
      WaitForBarrier(BarrierAt(0), 0);
      StoreShared(&Words()[LaneIndex()], 1);
      return;
    }
    for (int i = ThreadIndex() - 128; i < int(kBarriers / 4); i += 128) StoreShared(&Words()[i], 0);
    if (!left.fence_of_stores) FenceAsyncProxy();
    SyncWarpGroup();
    float d[16][4];
    const uint64_t matrix = MatrixDescriptor(SharedMemory(), kPanelBytes);
    if (!left.begin) BeginProducts(d);
    MultiplyBf16(d, matrix, matrix, false);
    if (!left.commit) CommitProducts();
    if (!left.wait) WaitForProducts(d);
    if (LaneIndex() == 0 && WarpIndex() >= 4 + left.arrivals) ArriveAtBarrier(BarrierAt(0));
    if (left.wait) WaitForProducts(d);
  });
}

TEST(ProductTest, WhatIsLeftOutIsReported) {
  for (const CopyLanding landing : kLandings) {
    EXPECT_THAT(KindsWithout({}, landing), IsEmpty());
    EXPECT_THAT(KindsWithout({.fence_of_stores = true}, landing), ElementsAre(ProblemKind::kMissingFence));
    EXPECT_THAT(KindsWithout({.begin = true}, landing), ElementsAre(ProblemKind::kMissingFence));
    EXPECT_THAT(KindsWithout({.commit = true}, landing),
                ElementsAre(ProblemKind::kUnwaitedCopies, ProblemKind::kSharedRace));
    EXPECT_THAT(KindsWithout({.wait = true}, landing), ElementsAre(ProblemKind::kSharedRace))
        << "the arrival before the wait does not publish that the product is done";
    EXPECT_THAT(KindsWithout({.arrivals = 1}, landing), ElementsAre(ProblemKind::kSharedRace))
        << "one of the four warps has not told that it waited";
  }
}

TEST(ProductTest, MatricesOutsideOfSharedMemoryAreReported) {
  ExpectAlways(ProblemKind::kSharedOutOfBounds, {.num_threads = 128, .shared_bytes = kPanelBytes}, [] {
    for (int i = ThreadIndex(); i < kPanelBytes / 4; i += 128) StoreShared(&Words()[i], 0);
    FenceAsyncProxy();
    SyncBlock();
    float d[16][4] = {};
    const uint32_t rows[4] = {};
    BeginProducts(d);
    MultiplyRowsBf16(d, rows, AtRow(MatrixDescriptor(SharedMemory(), kPanelBytes), 0));  // There is no second panel.
    CommitProducts();
    WaitForProducts(d);
  });
}

TEST(ProductTest, AGroupThatIsNotTogetherIsReported) {
  ExpectAlways(ProblemKind::kDeadlock, OneGroup(), [] {
    float d[16][4] = {};
    if (WarpIndex() == 3) return;
    BeginProducts(d);
  });
  ExpectAlways(ProblemKind::kDivergence, OneWarp(), [] { SyncWarpGroup(); });
}

}  // namespace
}  // namespace quire::simt
