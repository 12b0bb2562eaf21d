// SPDX-License-Identifier: Apache-2.0

// Races in global memory, within a block and between blocks.

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
using ::testing::IsEmpty;

class GlobalRaceTest : public ::testing::Test {
 protected:
  LaunchConfig Blocks(int num_blocks, int num_threads = 32) {
    return {
        .num_blocks = num_blocks,
        .num_threads = num_threads,
        .shared_bytes = 64,
        .buffers = {WritableBuffer("words", words_.data(), words_.size()), WritableBuffer("counter", &counter_, 1)}};
  }

  std::vector<uint32_t> words_ = std::vector<uint32_t>(4096);
  uint32_t counter_ = 0;
};

TEST_F(GlobalRaceTest, ThreadsOfABlockNeedABarrier) {
  const auto kernel = [&](bool barrier) {
    return [&, barrier] {
      StoreGlobal(&words_[ThreadIndex()], 1);
      if (barrier) SyncBlock();
      LoadGlobal(&words_[ThreadIndex() ^ 32]);
    };
  };
  EXPECT_THAT(KindsOf(Blocks(1, 64), kernel(true)), IsEmpty());
  EXPECT_THAT(KindsOf(Blocks(1, 64), kernel(false)), ElementsAre(ProblemKind::kGlobalRace));
}

TEST_F(GlobalRaceTest, TwoBlocksDoNotWriteOneWord) {
  const auto same = [&] { StoreGlobal(&words_[ThreadIndex()], 1); };
  const auto own = [&] { StoreGlobal(&words_[BlockIndex() * 32 + ThreadIndex()], 1); };
  EXPECT_THAT(KindsOf(Blocks(2), own), IsEmpty());
  EXPECT_THAT(KindsOf(Blocks(2), same), ElementsAre(ProblemKind::kGlobalRace));
}

TEST_F(GlobalRaceTest, HalvesOfAWordAreApart) {
  auto* const halves = reinterpret_cast<uint16_t*>(words_.data());
  EXPECT_THAT(KindsOf(Blocks(2), [&] { StoreGlobal(&halves[2 * ThreadIndex() + BlockIndex()], 1); }), IsEmpty());
}

TEST_F(GlobalRaceTest, BlocksDoNotReadWhatOthersWrite) {
  const auto kernel = [&] {
    if (BlockIndex() == 1) {
      LoadGlobal(&words_[ThreadIndex()]);
    } else {
      StoreGlobal(&words_[ThreadIndex()], 1);
    }
  };
  EXPECT_THAT(KindsOf(Blocks(2), kernel), ElementsAre(ProblemKind::kGlobalRace));
}

TEST_F(GlobalRaceTest, BlocksMayReadAndAddToTheSameWords) {
  EXPECT_THAT(KindsOf(Blocks(3),
                      [&] {
                        LoadGlobal(&words_[ThreadIndex()]);
                        AtomicAdd(&words_[1000], 1);
                      }),
              IsEmpty());
}

TEST_F(GlobalRaceTest, AtomicsAndPlainWritesOfDifferentBlocksRace) {
  const auto kernel = [&] {
    if (ThreadIndex() != 0) return;
    if (BlockIndex() == 2) {
      StoreGlobal(&counter_, 0);
    } else {
      AtomicAdd(&counter_, 1);
    }
  };
  EXPECT_THAT(KindsOf(Blocks(3), kernel), ElementsAre(ProblemKind::kGlobalRace));
}

// Every block writes a row. The last block to take a ticket adds up the rows of all blocks.
struct LastBlockAddsUp {
  bool fence = true;
  bool barrier = true;
  bool ticket = true;

  void operator()(uint32_t* words, uint32_t* counter) const {
    StoreGlobal(&words[BlockIndex() * 32 + ThreadIndex() % 32], BlockIndex());
    if (fence) MemoryFence();
    if (barrier) SyncBlock();
    uint32_t* const is_last = Words();
    if (ThreadIndex() == 0) {
      StoreShared(is_last, ticket ? TakeTicket(counter, GridSize()) + 1 == uint32_t(GridSize()) : 1);
    }
    SyncBlock();
    if (LoadShared(is_last) == 0) return;
    MemoryFence();
    uint32_t sum = 0;
    for (int block = 0; block < GridSize(); ++block) sum += LoadGlobal(&words[block * 32 + ThreadIndex()]);
    StoreGlobal(&words[2048 + ThreadIndex()], sum);
  }
};

TEST_F(GlobalRaceTest, LastBlockMaySeeWhatAllHaveWritten) {
  const auto kernel = [&](const LastBlockAddsUp& block) { return [&, block] { block(words_.data(), &counter_); }; };
  EXPECT_THAT(KindsOf(Blocks(5), kernel({})), IsEmpty());
  EXPECT_EQ(words_[2048 + 7], 0u + 1 + 2 + 3 + 4);
  ExpectAlways(ProblemKind::kGlobalRace, Blocks(5), kernel({.fence = false}));
  ExpectAlways(ProblemKind::kGlobalRace, Blocks(5), kernel({.barrier = false}));
  ExpectAlways(ProblemKind::kGlobalRace, Blocks(5), kernel({.ticket = false}));
}

}  // namespace
}  // namespace quire::simt
