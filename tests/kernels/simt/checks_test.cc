// SPDX-License-Identifier: Apache-2.0

// Mistakes in a kernel, other than races, are reported, and correct code is not. The kernels have a few lines, each
// with one mistake.

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/simt.h"
#include "tests/kernels/simt/report_test_util.h"

namespace quire::simt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// --- Divergence and deadlock

TEST(DivergenceTest, LanesInDifferentCollectivesEndTheLaunch) {
  const LaunchReport report = Launch(OneWarp(), [] { LaneIndex() < 16 ? SyncWarp() : (void)Ballot(true); });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kDivergence));
  EXPECT_FALSE(report.is_complete);
  EXPECT_THAT(report.problems[0].text, HasSubstr("lanes 0-15 in SyncWarp at checks_test.cc:"));
  EXPECT_THAT(report.problems[0].text, HasSubstr("lanes 16-31 in Ballot at checks_test.cc:"));
}

TEST(DivergenceTest, LanesThatHaveExitedDivergeFromTheOthers) {
  const LaunchReport report = Launch(TwoWarps(), [] {
    if (LaneIndex() < 8) return;
    ShuffleXor(1.0f, 1);
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kDivergence));
  EXPECT_THAT(report.problems[0].text, HasSubstr("warp 1: lanes 0-7 exited, lanes 8-31 in ShuffleXor"));
}

TEST(DivergenceTest, MatrixInstructionsMustBeTheSameInstruction) {
  const auto kernel = [](bool diverges) {
    return [diverges] {
      float c[4] = {};
      const uint32_t a[4] = {};
      if (diverges && LaneIndex() == 7) {
        MmaBf16(c, a, 0, 0);
      } else {
        MmaBf16(c, a, 0, 0);
      }
    };
  };
  EXPECT_THAT(KindsOf(OneWarp(), kernel(false)), IsEmpty());
  EXPECT_THAT(KindsOf(OneWarp(), kernel(true)), ElementsAre(ProblemKind::kDivergence));
}

TEST(DivergenceTest, AWarpComesToABarrierAsAWhole) {
  const auto whole_warps_leave = [] {
    if (WarpIndex() == 1) return;
    SyncBlock();
  };
  const auto one_lane_leaves = [] {
    if (ThreadIndex() == 5) return;
    SyncBlock();
  };
  const auto two_barriers = [] {
    if (ThreadIndex() < 5) {
      SyncBlock();
    } else {
      SyncBlock();
    }
  };
  EXPECT_THAT(KindsOf(TwoWarps(), whole_warps_leave), IsEmpty());
  EXPECT_THAT(KindsOf(TwoWarps(), one_lane_leaves), ElementsAre(ProblemKind::kDivergence));
  EXPECT_THAT(KindsOf(TwoWarps(), two_barriers), ElementsAre(ProblemKind::kDivergence));
}

TEST(DeadlockTest, LanesThatWaitForEachOtherAreNamed) {
  const LaunchReport report = Launch(TwoWarps(), [] {
    if (ThreadIndex() == 3) SyncBlock();
    SyncWarp();
    if (ThreadIndex() != 3) SyncBlock();
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kDeadlock));
  EXPECT_FALSE(report.is_complete);
  EXPECT_THAT(report.problems[0].text, HasSubstr("warp 0: lanes 0-2 in SyncWarp at checks_test.cc:"));
  EXPECT_THAT(report.problems[0].text, HasSubstr("lanes 3-3 in SyncBlock at checks_test.cc:"));
  EXPECT_THAT(report.problems[0].text, HasSubstr("warp 1: lanes 0-31 in SyncBlock at checks_test.cc:"));
}

TEST(DeadlockTest, ALoopThatWaitsForOthersIsARunaway) {
  uint32_t flag = 0;
  LaunchConfig config = {.num_blocks = 2, .buffers = {WritableBuffer("flag", &flag, 1)}};
  config.max_operations_per_block = 10000;
  const LaunchReport report = Launch(config, [&] {
    while (LoadGlobal(&flag) == 0) {
    }
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kRunaway));
  EXPECT_FALSE(report.is_complete);
}

// --- Bounds, alignment, undefined contents

TEST(SharedBoundsTest, LoadsOutsideAreReportedAndGivePoison) {
  const LaunchReport report = Launch(OneWarp(64), [] {
    EXPECT_EQ(LoadShared(&Words()[16]), 0xffffffffu);
    EXPECT_EQ(LoadShared(Words() - 1), 0xffffffffu);
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kSharedOutOfBounds, ProblemKind::kSharedOutOfBounds));
  EXPECT_THAT(report.ToString(), HasSubstr("LoadShared of 4 bytes at offset 64 of 64"));
  EXPECT_THAT(report.ToString(), HasSubstr("LoadShared of 4 bytes at offset -4 of 64"));
  EXPECT_EQ(report.problems[0].count, 32);
  EXPECT_TRUE(report.is_complete);
}

TEST(SharedBoundsTest, StoresOutsideAreDropped) {
  EXPECT_THAT(KindsOf(OneWarp(64), [] { StoreShared(reinterpret_cast<U32x4*>(SharedMemory() + 56), U32x4{}); }),
              ElementsAre(ProblemKind::kSharedOutOfBounds));
}

TEST(SharedBoundsTest, MisalignedAccessesAreReported) {
  EXPECT_THAT(KindsOf(OneWarp(),
                      [] {
                        if (LaneIndex() == 0) StoreShared(reinterpret_cast<U32x2*>(SharedMemory() + 4), U32x2{});
                      }),
              ElementsAre(ProblemKind::kMisaligned));
}

TEST(SharedContentsTest, WhatNobodyWroteIsReportedAndIsPoison) {
  const LaunchReport report = Launch(OneWarp(), [] { EXPECT_EQ(LoadShared(&Words()[LaneIndex()]), 0xffffffffu); });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kUninitializedRead));
}

TEST(SharedContentsTest, NextBlockFindsNothingOfTheLast) {
  LaunchConfig config = OneWarp();
  config.num_blocks = 2;
  bool is_first = true;
  const LaunchReport report = Launch(config, [&] {
    if (is_first) StoreShared(&Words()[LaneIndex()], 1);
    SyncWarp();
    is_first = false;
    LoadShared(&Words()[LaneIndex()]);
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kUninitializedRead));
}

TEST(GlobalBoundsTest, AccessesOutsideOfEveryBufferAreReportedWithTheNearest) {
  std::vector<uint32_t> memory(64, 7);
  const LaunchConfig config = {
      .buffers = {ReadOnlyBuffer("low", memory.data(), 16), WritableBuffer("high", memory.data() + 32, 16)}};
  const LaunchReport report = Launch(config, [&] {
    EXPECT_EQ(LoadGlobal(&memory[17]), 0xffffffffu);
    StoreGlobal(&memory[31], 1);
  });
  EXPECT_THAT(Kinds(report), ElementsAre(ProblemKind::kGlobalOutOfBounds, ProblemKind::kGlobalOutOfBounds));
  EXPECT_THAT(report.ToString(), HasSubstr("LoadGlobal of 4 bytes at byte 68 of \"low\" (64 bytes)"));
  EXPECT_THAT(report.ToString(), HasSubstr("StoreGlobal of 4 bytes at byte -4 of \"high\" (64 bytes)"));
  EXPECT_EQ(memory, std::vector<uint32_t>(64, 7));
}

TEST(GlobalBoundsTest, ReadOnlyBuffersAreNotWritten) {
  uint32_t word = 7;
  const auto kernel = [&] {
    StoreGlobal(&word, LoadReadOnly(&word) + 1);
    AtomicAdd(&word, 1);
  };
  EXPECT_THAT(KindsOf({.buffers = {ReadOnlyBuffer("word", &word, 1)}}, kernel),
              ElementsAre(ProblemKind::kReadOnlyViolation, ProblemKind::kReadOnlyViolation));
  EXPECT_EQ(word, 7u);
}

TEST(GlobalBoundsTest, WhatIsWrittenIsNotReadThroughTheReadOnlyPath) {
  uint32_t word = 7;
  EXPECT_THAT(KindsOf({.buffers = {WritableBuffer("word", &word, 1)}}, [&] { LoadReadOnly(&word); }),
              ElementsAre(ProblemKind::kReadOnlyViolation));
}

TEST(GlobalBoundsTest, MisalignedAccessesAreReported) {
  alignas(16) const uint32_t words[8] = {};
  EXPECT_THAT(KindsOf({.buffers = {ReadOnlyBuffer("words", words, 8)}},
                      [&] {
                        const char* const odd = reinterpret_cast<const char*>(words) + 8;
                        LoadGlobal(reinterpret_cast<const U32x4*>(odd));
                      }),
              ElementsAre(ProblemKind::kMisaligned));
}

TEST(GlobalBoundsTest, WhatThePriorGridWroteIsReadAfterTheWait) {
  const uint32_t word = 7;
  const LaunchConfig config = {.buffers = {ReadOnlyBuffer("word", &word, 1).FromPriorGrid()}};
  EXPECT_THAT(KindsOf(config, [&] { LoadGlobal(&word); }), ElementsAre(ProblemKind::kBeforePriorGrid));
  EXPECT_THAT(KindsOf(config,
                      [&] {
                        WaitForPriorGrid();
                        LoadGlobal(&word);
                      }),
              IsEmpty());
}

// --- Bank conflicts

// Counts conflicts in a 32 x 32 matrix of T with rows of `stride` elements. Each lane loads one column's element of its
// row.
template <typename T>
int64_t ConflictsOfAColumn(int stride) {
  const LaunchReport report = Launch(OneWarp(32 * stride * sizeof(T)), [&] {
    T* const matrix = reinterpret_cast<T*>(SharedMemory());
    for (int row = 0; row < 32; ++row) StoreShared(&matrix[row * stride + LaneIndex()], T{});
    SyncWarp();
    for (int column = 0; column < 32; ++column) LoadShared(&matrix[LaneIndex() * stride + column]);
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
  return report.counters.shared_conflicts;
}

TEST(BankConflictTest, ColumnsConflictUnlessRowsArePadded) {
  EXPECT_EQ(ConflictsOfAColumn<uint32_t>(32), 32 * 31);
  EXPECT_EQ(ConflictsOfAColumn<uint32_t>(33), 0);
  EXPECT_EQ(ConflictsOfAColumn<U32x4>(32), 32 * 4 * 7);  // Four passes are needed anyway; in each, eight rows conflict.
  EXPECT_EQ(ConflictsOfAColumn<U32x4>(33), 0);
}

TEST(BankConflictTest, LanesThatSkipALineAreForgottenWhenTheWarpMeets) {
  const LaunchReport report = Launch(OneWarp(), [] {
    for (int round = 0; round < 3; ++round) {
      // In the first round only the even lanes store: 16 words without a conflict. In the other rounds all lanes store.
      if (round > 0 || LaneIndex() % 2 == 0) StoreShared(&Words()[round * 33 + LaneIndex()], 1);
      SyncWarp();
    }
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(report.counters.shared_conflicts, 0);
}

TEST(BankConflictTest, LanesMayShareAWord) {
  const LaunchReport report = Launch(OneWarp(), [] {
    if (LaneIndex() == 0) StoreShared(Words(), 1);
    StoreShared(reinterpret_cast<uint16_t*>(Words() + 32) + LaneIndex(), 1);
    SyncWarp();
    LoadShared(Words());
  });
  EXPECT_EQ(report.counters.shared_conflicts, 0);
}

// --- The launch

TEST(LaunchTest, SeedDecidesTheOrderOfBlocksAndThreads) {
  const auto order = [](uint64_t seed) {
    std::vector<int> threads;
    const LaunchConfig config = {.num_blocks = 4, .num_threads = 64, .seed = seed};
    EXPECT_TRUE(Launch(config, [&] {
                  threads.push_back(BlockIndex() * BlockSize() + ThreadIndex());
                  SyncWarp();
                  threads.push_back(ThreadIndex());
                }).ok());
    return threads;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(LaunchTest, ProblemsOfOneKindAndPlaceAreOneEntry) {
  const LaunchReport report = Launch(TwoWarps(64), [] {
    for (int i = 16; i < 20; ++i) LoadShared(&Words()[i]);
  });
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].count, 4 * 64);
  EXPECT_FALSE(report.ok());
}

TEST(LaunchTest, CountsBarriersShufflesAndAtomics) {
  const LaunchReport report = Launch(TwoWarps(), [] {
    if (ThreadIndex() == 0) StoreShared(Words(), 0);
    SyncBlock();
    SyncWarp();
    Shuffle(1, 0);
    Any(true);
    AtomicAdd(Words(), 1);
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
  EXPECT_EQ(report.counters.block_barriers, 1);
  EXPECT_EQ(report.counters.warp_barriers, 2);
  EXPECT_EQ(report.counters.shuffles, 4);
  EXPECT_EQ(report.counters.atomics, 64);
}

}  // namespace
}  // namespace quire::simt
