// SPDX-License-Identifier: Apache-2.0

// Tests the snapshot and the changes of WatchBlocks on their way from the block manager to the client's map.

#include "kv_manager/admin/block_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kv_manager/blocks/paged_block_manager.h"
#include "tests/kv_manager/admin/block_map.h"
#include "tests/random.h"

namespace quire {
namespace {

PoolSnapshot SnapshotOf(std::string states, uint64_t epoch = 1, uint64_t step = 1) {
  return {.worker = "w", .is_ready = true, .epoch = epoch, .step = step, .block_size = 4, .states = std::move(states)};
}

TEST(BlockChangesTest, TheFirstMessageIsASnapshot) {
  const auto message = EncodeBlocks({}, SnapshotOf("\1\3"));
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->snapshot().states(), "\1\3");
  EXPECT_EQ(message->snapshot().block_size(), 4u);
  EXPECT_EQ(message->worker(), "w");
}

TEST(BlockChangesTest, FewChangesAreADelta) {
  std::string states(20, '\1');
  const PoolSnapshot before = SnapshotOf(states);
  states[7] = '\3';
  const auto message = EncodeBlocks(before, SnapshotOf(states, 1, 2));
  ASSERT_TRUE(message.has_value());
  ASSERT_TRUE(message->has_delta());
  EXPECT_THAT(message->delta().blocks(), ::testing::ElementsAre(7));
  EXPECT_EQ(message->delta().states(), "\3");
  EXPECT_EQ(message->step(), 2u);
}

TEST(BlockChangesTest, ManyChangesAreASnapshotBecauseItIsSmaller) {
  const auto message = EncodeBlocks(SnapshotOf(std::string(20, '\1')), SnapshotOf(std::string(20, '\3')));
  EXPECT_TRUE(message->has_snapshot());
}

TEST(BlockChangesTest, ANewSessionBeginsWithASnapshot) {
  EXPECT_TRUE(EncodeBlocks(SnapshotOf("\1", 1), SnapshotOf("\1", 2))->has_snapshot());
}

TEST(BlockChangesTest, AStepThatChangesNothingIsToldAndNothingNewIsNot) {
  EXPECT_EQ(EncodeBlocks(SnapshotOf("\1", 1, 1), SnapshotOf("\1", 1, 2))->delta().blocks_size(), 0);
  EXPECT_EQ(EncodeBlocks(SnapshotOf("\1"), SnapshotOf("\1")).has_value(), false);
  EXPECT_EQ(EncodeBlocks(SnapshotOf("\1"), PoolSnapshot()).has_value(), false) << "a lost worker";
}

TEST(BlockMapTest, WhatDoesNotFollowIsRefused) {
  BlockMap map;
  v1::WatchBlocksResponse message;
  message.set_epoch(1);
  message.mutable_delta();
  EXPECT_EQ(map.Apply(message).message(), "changes of epoch 1 come without a snapshot");
  message.mutable_snapshot()->set_states("\1\1");
  EXPECT_TRUE(map.Apply(message).ok());
  message.mutable_delta()->add_blocks(2);
  message.mutable_delta()->set_states("\3");
  EXPECT_EQ(map.Apply(message).message(), "block 2 of a pool of 2 has changed");
  message.mutable_delta()->set_blocks(0, 1);
  message.mutable_delta()->set_states("\7");
  EXPECT_FALSE(map.Apply(message).ok());
  message.mutable_delta()->set_states("\3");
  message.set_epoch(2);
  EXPECT_FALSE(map.Apply(message).ok());
  message.set_epoch(1);
  EXPECT_TRUE(map.Apply(message).ok());
  EXPECT_EQ(map.states(), "\1\3");
}

// A worker whose sequences start, fork, end, are pinned and get lost at random, and a reader who sometimes looks.
class RandomPool {
 public:
  explicit RandomPool(uint64_t seed) : random_(seed) {}

  void Step() {
    blocks_.BeginStep(StepId{++step_});
    for (int i = random_.Between(0, 4); i > 0; --i) Act();
    blocks_.OnStepCommitted(StepId{step_});
    if (!random_.OneIn(60)) return;
    while (!sequences_.empty()) End(sequences_.begin()->first);
    blocks_.OnStepsAbandoned();
    step_ = 0;
    ++epoch_;
  }

  PoolSnapshot Snapshot() const {
    PoolSnapshot snapshot = SnapshotOf("", epoch_, step_);
    blocks_.CopyStates(&snapshot.states);
    return snapshot;
  }

  // Derives the state of each block from its definition.
  std::string StatesOneByOne() const {
    std::string states;
    for (int i = 0; i < blocks_.num_blocks(); ++i) {
      states.push_back(static_cast<char>(blocks_.HoldersOf(BlockId{static_cast<uint32_t>(i)}).state));
    }
    return states;
  }

 private:
  void Act() {
    const int prompt = random_.Between(1, 5) * 100;
    std::vector<TokenId> tokens;
    for (int i = 0; i < 20; ++i) tokens.push_back(prompt + i);
    switch (random_.Between(0, 4)) {
      case 0: {
        const SequenceId sequence{++last_id_};
        blocks_.AdoptPrefix(sequence, "", tokens, blocks_.FindPrefix("", tokens).num_block_tokens);
        sequences_[sequence] = tokens;
        const int num_tokens = random_.Between(17, 20);
        if (!blocks_.Allocate(sequence, 16, num_tokens, &copies_)) return End(sequence);
        blocks_.Publish(sequence, tokens, num_tokens);
        return;
      }
      case 1:
        if (sequences_.empty()) return;
        blocks_.Fork(sequences_.begin()->first, SequenceId{++last_id_}, 16);
        sequences_[SequenceId{last_id_}] = sequences_.begin()->second;
        return;
      case 2:
        if (!sequences_.empty()) End(std::next(sequences_.begin(), random_.Between(0, sequences_.size() - 1))->first);
        return;
      case 3:
        static_cast<void>(blocks_.Pin("", tokens, 100));
        return;
      default:
        static_cast<void>(blocks_.Unpin("", tokens));
    }
  }
  void End(SequenceId sequence) {
    blocks_.Free(sequence);
    sequences_.erase(sequence);
  }

  Random random_;
  PagedBlockManager blocks_{{.num_blocks = 60, .block_size = 4, .max_pinned_blocks = 20}};
  std::map<SequenceId, std::vector<TokenId>> sequences_;
  std::vector<BlockCopy> copies_;
  uint64_t last_id_ = 0;
  uint64_t step_ = 0;
  uint64_t epoch_ = 1;
};

TEST(BlockChangesTest, SnapshotAndChangesAreTheNextSnapshotWhateverHappens) {
  int num_snapshots = 0;
  int num_deltas = 0;
  std::string seen(6, ' ');
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    RandomPool pool(seed);
    Random random(seed + 1000);
    PoolSnapshot told;
    BlockMap map;
    for (int i = 0; i < 200; ++i) {
      pool.Step();
      if (!random.OneIn(2)) continue;  // A slow reader.
      const PoolSnapshot now = pool.Snapshot();
      ASSERT_EQ(now.states, pool.StatesOneByOne()) << "seed " << seed;
      for (const char state : now.states) seen[state] = 'x';
      const std::optional<v1::WatchBlocksResponse> message = EncodeBlocks(told, now);
      if (!message.has_value()) {
        ASSERT_EQ(now.states, map.states()) << "seed " << seed;
        continue;
      }
      ++(message->has_snapshot() ? num_snapshots : num_deltas);
      ASSERT_TRUE(map.Apply(*message).ok()) << "seed " << seed;
      ASSERT_EQ(map.states(), now.states) << "seed " << seed << ", snapshot " << i;
      ASSERT_EQ(map.step(), now.step);
      ASSERT_EQ(map.epoch(), now.epoch);
      told = now;
    }
  }
  EXPECT_EQ(seen, " xxxxx") << "every state was there";
  EXPECT_GT(num_snapshots, 200);
  EXPECT_GT(num_deltas, 2000);
}

}  // namespace
}  // namespace quire
