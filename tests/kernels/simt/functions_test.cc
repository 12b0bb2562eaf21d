// SPDX-License-Identifier: Apache-2.0

// Every function of the device layer is compared with a plain computation.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/half_float.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/simt.h"

namespace quire::simt {
namespace {

// Returns the result of each thread of a launch, in the order of blocks and threads.
template <typename T>
std::vector<T> PerThread(LaunchConfig config, const std::function<T()>& body) {
  std::vector<T> out(config.num_blocks * config.num_threads);
  config.buffers.push_back(WritableBuffer("out", out.data(), out.size()));
  const LaunchReport report =
      Launch(config, [&] { StoreGlobal(&out[BlockIndex() * BlockSize() + ThreadIndex()], body()); });
  EXPECT_TRUE(report.ok()) << report.ToString();
  return out;
}

template <typename T>
std::vector<T> PerLane(const std::function<T()>& body) {
  return PerThread<T>({}, body);
}

TEST(SimtFunctionsTest, EveryThreadKnowsItsPosition) {
  const LaunchConfig config = {.num_blocks = 3, .num_threads = 64};
  const auto positions = PerThread<U32x4>(config, [] {
    EXPECT_EQ(GridSize(), 3);
    EXPECT_EQ(BlockSize(), 64);
    return U32x4{{uint32_t(BlockIndex()), uint32_t(ThreadIndex()), uint32_t(WarpIndex()), uint32_t(LaneIndex())}};
  });
  for (uint32_t i = 0; i < positions.size(); ++i) {
    const U32x4 expected = {{i / 64, i % 64, i % 64 / 32, i % 32}};
    for (int j = 0; j < 4; ++j) EXPECT_EQ(positions[i].word[j], expected.word[j]) << "thread " << i << ", word " << j;
  }
}

TEST(SimtFunctionsTest, ShufflesMoveValuesBetweenLanes) {
  const auto rotated = PerLane<uint32_t>([] { return Shuffle(uint32_t(LaneIndex()), LaneIndex() + 1); });
  const auto exchanged = PerLane<float>([] { return ShuffleXor(float(LaneIndex()), 5); });
  const auto up = PerLane<uint64_t>([] { return ShuffleUp(uint64_t(LaneIndex()) << 40, 3); });
  const auto down = PerLane<double>([] { return ShuffleDown(double(LaneIndex()), 3); });
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(rotated[lane], (lane + 1) % 32);
    EXPECT_EQ(exchanged[lane], lane ^ 5);
    EXPECT_EQ(up[lane], uint64_t(lane < 3 ? lane : lane - 3) << 40);
    EXPECT_EQ(down[lane], lane + 3 < 32 ? lane + 3 : lane);
  }
}

TEST(SimtFunctionsTest, VotesSeeAllLanes) {
  for (const uint32_t bits : {0u, 1u, 0x80000000u, 0x1234abcdu, ~0u}) {
    const auto votes = PerLane<uint64_t>([&] {
      const bool mine = (bits >> LaneIndex() & 1) != 0;
      const uint64_t any = Any(mine);
      const uint64_t all = All(mine);
      return Ballot(mine) | any << 32 | all << 33;
    });
    for (const uint64_t vote : votes) {
      EXPECT_EQ(vote, bits | uint64_t(bits != 0) << 32 | uint64_t(bits == ~0u) << 33);
    }
  }
}

template <typename T>
void ExpectCopiesThroughSharedMemory(T (*value)(int)) {
  constexpr int kThreads = 64;
  std::vector<T> from(kThreads);
  std::vector<T> to(kThreads);
  for (int i = 0; i < kThreads; ++i) from[i] = value(i);
  const LaunchConfig config = {
      .num_threads = kThreads,
      .shared_bytes = kThreads * sizeof(T),
      .buffers = {ReadOnlyBuffer("from", from.data(), from.size()), WritableBuffer("to", to.data(), to.size())}};
  const LaunchReport report = Launch(config, [&] {
    T* const shared = reinterpret_cast<T*>(SharedMemory());
    const int i = ThreadIndex();
    StoreShared(&shared[i], i % 2 == 0 ? LoadGlobal(&from[i]) : LoadReadOnly(&from[i]));
    SyncBlock();
    StoreGlobal(&to[i], LoadShared(&shared[kThreads - 1 - i]));
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
  for (int i = 0; i < kThreads; ++i) EXPECT_EQ(memcmp(&to[i], &from[kThreads - 1 - i], sizeof(T)), 0) << i;
  EXPECT_EQ(report.counters.global_bytes_read, int64_t(kThreads * sizeof(T)));
  EXPECT_EQ(report.counters.shared_bytes_written, int64_t(kThreads * sizeof(T)));
}

TEST(SimtFunctionsTest, LoadsAndStoresMoveOneToSixteenBytes) {
  ExpectCopiesThroughSharedMemory<uint8_t>([](int i) { return uint8_t(i); });
  ExpectCopiesThroughSharedMemory<uint16_t>([](int i) { return uint16_t(1000 + i); });
  ExpectCopiesThroughSharedMemory<float>([](int i) { return 0.5f * i; });
  ExpectCopiesThroughSharedMemory<uint64_t>([](int i) { return uint64_t(i) << 33; });
  ExpectCopiesThroughSharedMemory<U32x2>([](int i) { return U32x2{{uint32_t(i), 7}}; });
  ExpectCopiesThroughSharedMemory<U32x4>([](int i) { return U32x4{{uint32_t(i), 1, 2, 3}}; });
}

TEST(SimtFunctionsTest, AtomicsOfAllBlocksAddUp) {
  uint32_t count = 5;
  uint64_t sum = uint64_t{1} << 40;
  float total = 0;
  uint32_t largest = 17;
  const LaunchConfig config = {.num_blocks = 3,
                               .num_threads = 64,
                               .shared_bytes = 8,
                               .buffers = {WritableBuffer("count", &count, 1), WritableBuffer("sum", &sum, 1),
                                           WritableBuffer("total", &total, 1), WritableBuffer("largest", &largest, 1)}};
  const LaunchReport report = Launch(config, [&] {
    uint64_t* const shared = reinterpret_cast<uint64_t*>(SharedMemory());
    if (ThreadIndex() == 0) StoreShared(shared, 0);
    SyncBlock();
    AtomicAdd(shared, uint64_t(ThreadIndex()));
    AtomicAdd(&count, 1);
    AtomicAdd(&total, 0.5f);
    AtomicMax(&largest, ThreadIndex());
    SyncBlock();
    if (ThreadIndex() == 0) AtomicAdd(&sum, LoadShared(shared));
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(count, 5u + 192);
  EXPECT_EQ(sum, (uint64_t{1} << 40) + 3 * (63 * 64 / 2));
  EXPECT_EQ(total, 96.0f);
  EXPECT_EQ(largest, 63u);
}

TEST(SimtFunctionsTest, TicketsAreDealtOnceAndStartAgain) {
  uint32_t counter = 0;
  const LaunchConfig config = {.buffers = {WritableBuffer("counter", &counter, 1)}};
  std::vector<int> dealt(32);
  for (int round = 0; round < 2; ++round) {
    const LaunchReport report = Launch(config, [&] { ++dealt[TakeTicket(&counter, 32)]; });
    EXPECT_TRUE(report.ok()) << report.ToString();
    EXPECT_EQ(counter, 0u);
  }
  EXPECT_EQ(dealt, std::vector<int>(32, 2));
}

TEST(SimtFunctionsTest, AsyncCopiesBringSixteenBytesOrZeros) {
  std::vector<U32x4> from(32);
  for (uint32_t i = 0; i < 32; ++i) from[i] = {{i, i + 1, i + 2, i + 3}};
  for (const CopyLanding landing : {CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom}) {
    const LaunchConfig config = {
        .shared_bytes = 512, .buffers = {ReadOnlyBuffer("from", from.data(), from.size())}, .landing = landing};
    const auto got = PerThread<U32x4>(config, [&] {
      U32x4* const mine = reinterpret_cast<U32x4*>(SharedMemory()) + LaneIndex();
      const bool is_read = LaneIndex() % 2 == 0;
      CopyAsync16(mine, is_read ? &from[LaneIndex()] : nullptr, is_read);
      CommitCopies();
      WaitCopies<0>();
      return LoadShared(mine);  // A thread's own copy needs no barrier.
    });
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(got[lane].word[i], lane % 2 == 0 ? lane + i : 0);
    }
  }
}

TEST(SimtFunctionsTest, WaitsLeaveTheLatestGroupsInFlight) {
  const std::vector<uint32_t> from(32 * 4 * 3, 1);
  const LaunchConfig config = {.shared_bytes = 3 * 512, .buffers = {ReadOnlyBuffer("from", from.data(), from.size())}};
  // Late copies land only when they must. A copy that is not due has not replaced the poison yet. The test reads the
  // bytes without the layer.
  const auto landed = PerThread<uint32_t>(config, [&] {
    const auto copy = [&](int i) { return SharedMemory() + (i * 32 + LaneIndex()) * 16; };
    for (int i = 0; i < 3; ++i) {
      CopyAsync16(copy(i), &from[(i * 32 + LaneIndex()) * 4], true);
      if (i < 2) CommitCopies();
    }
    const auto count = [&] {
      uint32_t ones = 0;
      for (int i = 0; i < 3; ++i) ones += *copy(i) == 1;
      return ones;
    };
    uint32_t counts = count();
    WaitCopies<1>();
    counts = counts * 10 + count();
    WaitCopies<0>();  // The third copy is not in a group yet.
    counts = counts * 10 + count();
    CommitCopies();
    WaitCopies<0>();
    return counts * 10 + count();
  });
  for (const uint32_t counts : landed) EXPECT_EQ(counts, 123u);
}

TEST(SimtFunctionsTest, LoadMatrixDealsOutFourMatrices) {
  const LaunchConfig config = {.shared_bytes = 512};
  for (const bool is_transposed : {false, true}) {
    const auto got = PerThread<U32x4>(config, [&] {
      // Element (r, c) of matrix m is 64 m + 8 r + c. The rows are stored in reverse order.
      uint16_t* const shared = reinterpret_cast<uint16_t*>(SharedMemory());
      uint16_t* const row = shared + (31 - LaneIndex()) * 8;
      for (int c = 0; c < 8; ++c) StoreShared(row + c, LaneIndex() * 8 + c);
      SyncWarp();
      uint32_t r[4];
      if (is_transposed) {
        LoadMatrix4Transposed(r, row);
      } else {
        LoadMatrix4(r, row);
      }
      return U32x4{{r[0], r[1], r[2], r[3]}};
    });
    for (int lane = 0; lane < 32; ++lane) {
      for (int m = 0; m < 4; ++m) {
        const auto element = [&](int column) {
          return uint32_t(64 * m + (is_transposed ? 8 * column + lane / 4 : 8 * (lane / 4) + column));
        };
        EXPECT_EQ(got[lane].word[m], element(2 * (lane % 4)) | element(2 * (lane % 4) + 1) << 16);
      }
    }
  }
}

// Tests mma with matrices that are distributed here as in the PTX manual, "Matrix Fragments for mma.m16n8k16".
void ExpectMmaAgreesWithLoops(bool is_bf16) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto round = [&](float x) { return is_bf16 ? ToFloat(ToBFloat16(x)) : ToFloat(ToFloat16(x)); };
  float a[16][16], b[16][8], c[16][8];
  for (auto& row : a)
    for (float& x : row) x = round(normal(random));
  for (auto& row : b)
    for (float& x : row) x = round(normal(random));
  for (auto& row : c)
    for (float& x : row) x = normal(random);
  const auto pack = [&](float low, float high) { return is_bf16 ? PackBf16(low, high) : PackF16(low, high); };

  const auto got = PerLane<U32x4>([&] {
    const int group = LaneIndex() >> 2;
    const int in_group = LaneIndex() % 4;
    uint32_t ra[4];
    for (int i = 0; i < 4; ++i) {
      const int row = i == 0 || i == 2 ? group : group + 8;
      const int column = in_group * 2 + (i < 2 ? 0 : 8);
      ra[i] = pack(a[row][column], a[row][column + 1]);
    }
    const uint32_t b0 = pack(b[in_group * 2][group], b[in_group * 2 + 1][group]);
    const uint32_t b1 = pack(b[in_group * 2 + 8][group], b[in_group * 2 + 9][group]);
    float rc[4];
    for (int i = 0; i < 4; ++i) rc[i] = c[i < 2 ? group : group + 8][in_group * 2 + i % 2];
    if (is_bf16) {
      MmaBf16(rc, ra, b0, b1);
    } else {
      MmaF16(rc, ra, b0, b1);
    }
    return U32x4{{FloatToBits(rc[0]), FloatToBits(rc[1]), FloatToBits(rc[2]), FloatToBits(rc[3])}};
  });
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8);
      const int column = lane % 4 * 2 + i % 2;
      double sum = c[row][column];
      for (int k = 0; k < 16; ++k) sum += double(a[row][k]) * b[k][column];
      EXPECT_NEAR(BitsToFloat(got[lane].word[i]), sum, 1e-5) << row << ", " << column;
    }
  }
}

TEST(SimtFunctionsTest, MmaMultipliesMatrices) {
  ExpectMmaAgreesWithLoops(/*is_bf16=*/true);
  ExpectMmaAgreesWithLoops(/*is_bf16=*/false);
}

// Tests mma with matrices of bytes, which are distributed as in the PTX manual, "Matrix Fragments for mma.m16n8k32".
// The sums wrap around at 32 bits.
TEST(SimtFunctionsTest, MmaMultipliesMatricesOfBytes) {
  std::mt19937 random(4);
  int8_t a[16][32], b[32][8];
  int32_t c[16][8];
  for (auto& row : a)
    for (int8_t& x : row) x = static_cast<int8_t>(random());
  for (auto& row : b)
    for (int8_t& x : row) x = static_cast<int8_t>(random());
  for (auto& row : c)
    for (int32_t& x : row) x = static_cast<int32_t>(random());
  const auto got = PerLane<U32x4>([&] {
    const int group = LaneIndex() >> 2;
    const int in_group = LaneIndex() % 4;
    uint32_t ra[4] = {}, rb[2] = {};
    for (int i = 0; i < 16; ++i) {
      const int row = i / 4 % 2 == 0 ? group : group + 8;
      const int column = in_group * 4 + i % 4 + (i < 8 ? 0 : 16);
      ra[i / 4] |= uint32_t{static_cast<uint8_t>(a[row][column])} << (8 * (i % 4));
    }
    for (int i = 0; i < 8; ++i) {
      const int row = in_group * 4 + i % 4 + (i < 4 ? 0 : 16);
      rb[i / 4] |= uint32_t{static_cast<uint8_t>(b[row][group])} << (8 * (i % 4));
    }
    int32_t rc[4];
    for (int i = 0; i < 4; ++i) rc[i] = c[i < 2 ? group : group + 8][in_group * 2 + i % 2];
    MmaS8(rc, ra, rb[0], rb[1]);
    return U32x4{{uint32_t(rc[0]), uint32_t(rc[1]), uint32_t(rc[2]), uint32_t(rc[3])}};
  });
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + (i < 2 ? 0 : 8);
      const int column = lane % 4 * 2 + i % 2;
      int64_t sum = c[row][column];
      for (int k = 0; k < 32; ++k) sum += a[row][k] * b[k][column];
      EXPECT_EQ(got[lane].word[i], static_cast<uint32_t>(sum)) << row << ", " << column;
    }
  }
}

TEST(SimtFunctionsTest, ArithmeticFlushesSubnormalNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_FLOAT_EQ(Exp2(3.5f), 11.313708f);
  EXPECT_EQ(Exp2(-infinity), 0.0f);
  EXPECT_EQ(Exp2(-127.0f), 0.0f);
  EXPECT_FLOAT_EQ(Log2(10.0f), 3.321928f);
  EXPECT_EQ(Log2(0.0f), -infinity);
  EXPECT_EQ(Log2(1e-40f), -infinity);
  EXPECT_EQ(Reciprocal(4.0f), 0.25f);
  EXPECT_EQ(Reciprocal(0x1p127f), 0.0f);
  EXPECT_EQ(ReciprocalSqrt(4.0f), 0.5f);
  EXPECT_TRUE(std::isnan(Exp2(NAN)));
}

TEST(SimtFunctionsTest, PackedHalvesRoundToNearestEven) {
  const uint32_t bf16 = PackBf16(1.00390625f, -2.0f);  // Halfway between 1 and 1 + 2^-7.
  EXPECT_EQ(LowBf16(bf16), 1.0f);
  EXPECT_EQ(HighBf16(bf16), -2.0f);
  const uint32_t f16 = PackF16(65504.0f, 0x1p-24f);
  EXPECT_EQ(LowF16(f16), 65504.0f);
  EXPECT_EQ(HighF16(f16), 0x1p-24f);
  EXPECT_EQ(PackBf16(NAN, -NAN), 0x7fff7fffu);
  EXPECT_EQ(PackF16(NAN, -NAN), 0x7fff7fffu);
}

}  // namespace
}  // namespace quire::simt
