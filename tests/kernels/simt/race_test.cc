// SPDX-License-Identifier: Apache-2.0

// Races in shared memory are reported in any order of the threads. Accesses that a barrier separates are not reported.

#include <cstdint>
#include <functional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/simt/report_test_util.h"

namespace quire::simt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SharedRaceTest, ReadOfAnotherWarpsWriteNeedsABlockBarrier) {
  const auto kernel = [](const std::function<void()>& barrier) {
    return [barrier] {
      StoreShared(&Words()[ThreadIndex()], ThreadIndex());
      barrier();
      LoadShared(&Words()[ThreadIndex() ^ 32]);
    };
  };
  EXPECT_THAT(KindsOf(TwoWarps(), kernel([] { SyncBlock(); })), IsEmpty());
  const LaunchReport report = Launch(TwoWarps(), kernel([] { SyncWarp(); }));
  EXPECT_TRUE(report.Has(ProblemKind::kSharedRace));
}

TEST(SharedRaceTest, ReadOfAnotherLanesWriteNeedsAWarpBarrier) {
  const auto kernel = [](const std::function<void()>& barrier) {
    return [barrier] {
      StoreShared(&Words()[LaneIndex()], LaneIndex());
      barrier();
      LoadShared(&Words()[LaneIndex() ^ 1]);
    };
  };
  EXPECT_THAT(KindsOf(OneWarp(), kernel([] { SyncWarp(); })), IsEmpty());
  // A shuffle makes lanes meet, but it orders no memory.
  EXPECT_THAT(KindsOf(OneWarp(), kernel([] { Shuffle(0, 0); })), ElementsAre(ProblemKind::kSharedRace));
}

TEST(SharedRaceTest, WriteAfterSeveralReadersNeedsABarrierWithAllOfThem) {
  const auto kernel = [](bool block_barrier) {
    return [block_barrier] {
      if (ThreadIndex() == 0) StoreShared(Words(), 1);
      SyncBlock();
      LoadShared(Words());
      SyncWarp();
      if (block_barrier) SyncBlock();
      if (ThreadIndex() == 0) StoreShared(Words(), 2);  // The last reader may be in this warp, before its barrier.
    };
  };
  EXPECT_THAT(KindsOf(TwoWarps(), kernel(true)), IsEmpty());
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    LaunchConfig config = TwoWarps();
    config.seed = seed;
    const LaunchReport report = Launch(config, kernel(false));
    // The race is found whether the read or the write comes first.
    EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kSharedRace)) << "seed " << seed;
  }
}

TEST(SharedRaceTest, OnlyReaderOfAWarpMayWriteWhatItRead) {
  EXPECT_THAT(KindsOf(OneWarp(),
                      [] {
                        StoreShared(&Words()[LaneIndex()], 1);
                        StoreShared(&Words()[LaneIndex()], LoadShared(&Words()[LaneIndex()]) + 1);
                      }),
              IsEmpty());
}

TEST(SharedRaceTest, TwoWritersOfOneWordRace) {
  EXPECT_THAT(KindsOf(OneWarp(), [] { StoreShared(&Words()[LaneIndex() / 2], 1); }),
              ElementsAre(ProblemKind::kSharedRace));
}

TEST(SharedRaceTest, NeighboursInOneWordDoNotRace) {
  EXPECT_THAT(KindsOf(OneWarp(),
                      [] {
                        auto* const halves = reinterpret_cast<uint16_t*>(SharedMemory());
                        auto* const bytes = reinterpret_cast<uint8_t*>(SharedMemory() + 512);
                        StoreShared(&halves[LaneIndex()], LaneIndex());
                        StoreShared(&bytes[LaneIndex()], LaneIndex());
                        SyncWarp();
                        LoadShared(&Words()[LaneIndex() / 2]);
                        LoadShared(&Words()[128 + LaneIndex() / 4]);
                      }),
              IsEmpty());
  EXPECT_THAT(KindsOf(OneWarp(),
                      [] {
                        auto* const halves = reinterpret_cast<uint16_t*>(SharedMemory());
                        StoreShared(&halves[LaneIndex()], LaneIndex());
                        if (LaneIndex() == 2) StoreShared(&halves[3], 0);
                      }),
              ElementsAre(ProblemKind::kSharedRace));
}

TEST(SharedRaceTest, LoadMatrixReadsForTheWholeWarp) {
  const auto kernel = [](bool barrier) {
    return [barrier] {
      char* const row = SharedMemory() + LaneIndex() * 16;
      StoreShared(reinterpret_cast<U32x4*>(row), U32x4{});
      if (barrier) SyncWarp();
      uint32_t r[4];
      LoadMatrix4(r, row);  // The row that this lane wrote is delivered to other lanes.
    };
  };
  EXPECT_THAT(KindsOf(OneWarp(), kernel(true)), IsEmpty());
  EXPECT_THAT(KindsOf(OneWarp(), kernel(false)), ElementsAre(ProblemKind::kSharedRace));
}

TEST(SharedRaceTest, AtomicsRaceWithPlainAccessesOnly) {
  const auto kernel = [](bool barrier) {
    return [barrier] {
      if (ThreadIndex() == 0) StoreShared(Words(), 0);
      SyncBlock();
      AtomicAdd(Words(), 1);
      if (barrier) SyncBlock();
      if (ThreadIndex() == 40) LoadShared(Words());
    };
  };
  EXPECT_THAT(KindsOf(TwoWarps(), kernel(true)), IsEmpty());
  EXPECT_THAT(KindsOf(TwoWarps(), kernel(false)), ElementsAre(ProblemKind::kSharedRace));
}

// --- Asynchronous copies. The source has the 512 bytes of a warp.

class AsyncCopyTest : public ::testing::TestWithParam<CopyLanding> {
 protected:
  LaunchConfig Config(int num_threads = 32) const {
    return {.num_threads = num_threads,
            .shared_bytes = 4096,
            .buffers = {ReadOnlyBuffer("source", source_.data(), source_.size())},
            .landing = GetParam()};
  }
  const U32x4* Source() const { return &source_[ThreadIndex() % 32]; }
  static U32x4* Place(int i) { return reinterpret_cast<U32x4*>(SharedMemory()) + i; }

  std::vector<U32x4> source_ = std::vector<U32x4>(32);
};

INSTANTIATE_TEST_SUITE_P(Landings, AsyncCopyTest,
                         ::testing::Values(CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom));

TEST_P(AsyncCopyTest, OthersNeedABarrierAfterTheWait) {
  const auto kernel = [&](bool barrier) {
    return [&, barrier] {
      CopyAsync16(Place(LaneIndex()), Source(), true);
      CommitCopies();
      WaitCopies<0>();
      if (barrier) SyncWarp();
      LoadShared(Place(LaneIndex() ^ 1));
    };
  };
  EXPECT_THAT(KindsOf(Config(), kernel(true)), IsEmpty());
  ExpectAlways(ProblemKind::kSharedRace, Config(), kernel(false));
}

TEST_P(AsyncCopyTest, ABarrierWithoutTheWaitIsNotEnough) {
  EXPECT_THAT(KindsOf(Config(),
                      [&] {
                        CopyAsync16(Place(LaneIndex()), Source(), true);
                        CommitCopies();
                        SyncBlock();
                        LoadShared(Place(LaneIndex()));
                        WaitCopies<0>();
                      }),
              ElementsAre(ProblemKind::kSharedRace));
}

TEST_P(AsyncCopyTest, WaitingForOneGroupTooFewIsFound) {
  const auto kernel = [&](bool enough) {
    return [&, enough] {
      for (int i = 0; i < 2; ++i) {
        CopyAsync16(Place(i * 32 + LaneIndex()), Source(), true);
        CommitCopies();
      }
      enough ? WaitCopies<0>() : WaitCopies<1>();
      SyncWarp();
      LoadShared(Place(LaneIndex()));
      LoadShared(Place(32 + LaneIndex()));
      WaitCopies<0>();
    };
  };
  EXPECT_THAT(KindsOf(Config(), kernel(true)), IsEmpty());
  EXPECT_THAT(KindsOf(Config(), kernel(false)), ElementsAre(ProblemKind::kSharedRace));
}

TEST_P(AsyncCopyTest, ACopyOverWhatOthersStillReadIsFound) {
  const auto kernel = [&](bool barrier) {
    return [&, barrier] {
      StoreShared(Place(LaneIndex()), U32x4{});
      SyncWarp();
      LoadShared(Place(LaneIndex() ^ 1));
      if (barrier) SyncWarp();
      CopyAsync16(Place(LaneIndex()), Source(), true);
      CommitCopies();
      WaitCopies<0>();
    };
  };
  EXPECT_THAT(KindsOf(Config(), kernel(true)), IsEmpty());
  EXPECT_THAT(KindsOf(Config(), kernel(false)), ElementsAre(ProblemKind::kSharedRace));
}

TEST_P(AsyncCopyTest, TwoCopiesInFlightToOnePlaceAreFound) {
  EXPECT_THAT(KindsOf(Config(),
                      [&] {
                        CopyAsync16(Place(LaneIndex()), Source(), true);
                        CopyAsync16(Place(LaneIndex()), Source(), false);
                        CommitCopies();
                        WaitCopies<0>();
                      }),
              ElementsAre(ProblemKind::kSharedRace));
}

TEST_P(AsyncCopyTest, CopiesInFlightAtTheEndAreFound) {
  EXPECT_THAT(KindsOf(Config(), [&] { CopyAsync16(Place(LaneIndex()), Source(), true); }),
              ElementsAre(ProblemKind::kUnwaitedCopies));
}

TEST_P(AsyncCopyTest, BothEndsAreChecked) {
  EXPECT_THAT(KindsOf(Config(),
                      [&] {
                        CopyAsync16(Place(LaneIndex()), &source_[31] + LaneIndex(), true);
                        CommitCopies();
                        WaitCopies<0>();
                      }),
              ElementsAre(ProblemKind::kGlobalOutOfBounds));
  EXPECT_THAT(KindsOf(Config(), [&] { CopyAsync16(Place(4096 / 16 + LaneIndex()), Source(), true); }),
              ElementsAre(ProblemKind::kSharedOutOfBounds));
  EXPECT_THAT(KindsOf(Config(),
                      [&] {
                        CopyAsync16(SharedMemory() + LaneIndex() * 16 + 8, Source(), true);
                        CommitCopies();
                        WaitCopies<0>();
                      }),
              testing::Contains(ProblemKind::kMisaligned));
}

}  // namespace
}  // namespace quire::simt
