// SPDX-License-Identifier: Apache-2.0

#include "scheduler/sequence.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/free_rows.h"
#include "scheduler/sequence_group.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A sequence of 5 prompt tokens that generates 3.
Sequence MakeSequence() {
  Sequence sequence(SequenceId{1}, 0, {1, 2, 3, 4, 5}, 3);
  sequence.EnterRow(RowId{0}, 0);
  return sequence;
}

TEST(SequenceTest, SampleInFlightCountsAsAToken) {
  Sequence sequence = MakeSequence();
  sequence.OnSlicePlanned(3);
  EXPECT_EQ(sequence.num_tokens(), 5);
  EXPECT_EQ(sequence.num_uncomputed_tokens(), 2);
  sequence.OnSlicePlanned(2);
  EXPECT_EQ(sequence.num_tokens(), 6);
  EXPECT_EQ(sequence.num_known_tokens(), 5);
  EXPECT_EQ(sequence.num_uncomputed_tokens(), 1);
}

TEST(SequenceTest, NothingIsLeftToComputeOnceTheLastTokenIsInFlight) {
  Sequence sequence = MakeSequence();
  sequence.OnSlicePlanned(5);
  sequence.OnSlicePlanned(1);
  EXPECT_EQ(sequence.num_uncomputed_tokens(), 1);
  sequence.OnSlicePlanned(1);
  EXPECT_EQ(sequence.num_tokens(), 8);
  EXPECT_EQ(sequence.num_uncomputed_tokens(), 0);
}

TEST(SequenceTest, LeavingTheRowLosesWhatWasComputedAndKeepsTheTokens) {
  Sequence sequence = MakeSequence();
  sequence.OnSlicePlanned(5);
  sequence.LeaveRow(false);
  sequence.OnSliceCommitted(/*position=*/5, /*sampled=*/true);
  sequence.Append(6);
  EXPECT_EQ(sequence.num_computed_tokens(), 0);
  EXPECT_EQ(sequence.num_uncomputed_tokens(), 6);
  EXPECT_EQ(sequence.num_generated_tokens(), 1);
  EXPECT_EQ(sequence.NumRecomputed(4), 4);
  EXPECT_EQ(sequence.NumRecomputed(6), 5);
}

TEST(SequenceTest, AbandonedSlicesLeaveNoSampleInFlight) {
  Sequence sequence = MakeSequence();
  sequence.OnSlicePlanned(5);
  sequence.OnSlicesAbandoned();
  EXPECT_EQ(sequence.num_tokens(), 5);
  EXPECT_FALSE(sequence.has_slices_in_flight());
}

TEST(SequenceTest, TableChangeStartsAtTheFirstDifference) {
  const BlockId a{10}, b{11}, c{12}, d{13};
  Sequence sequence = MakeSequence();
  SequenceSlice slice;
  slice.first_position = 0;
  sequence.FillTableChange({a, b}, 4, &slice);
  EXPECT_EQ(slice.first_changed_block, 0);
  EXPECT_THAT(slice.block_tail, ElementsAre(a, b));
  slice.first_position = 5;
  sequence.FillTableChange({a, b}, 4, &slice);
  EXPECT_EQ(slice.first_changed_block, 2);
  EXPECT_THAT(slice.block_tail, IsEmpty());
  slice.first_position = 6;
  sequence.FillTableChange({a, c, d}, 4, &slice);  // One block is copied on write, and one is new.
  EXPECT_EQ(slice.first_changed_block, 1);
  EXPECT_THAT(slice.block_tail, ElementsAre(c, d));
}

TEST(SequenceTest, ASequenceIsBehindItsLossUntilTheSlicesThatWereLostAreAnswered) {
  Sequence sequence(SequenceId{1}, 0, std::vector<TokenId>(20, 1), 10);
  const auto answer = [&](int position) {
    sequence.OnSlicePlanned(1);
    return sequence.OnSliceCommitted(position, /*sampled=*/false);
  };
  EXPECT_TRUE(answer(8));
  EXPECT_FALSE(sequence.is_behind_loss());
  sequence.OnLost(12);
  sequence.OnLost(10);
  EXPECT_FALSE(answer(8)) << "it got so far before";
  EXPECT_TRUE(answer(11));
  EXPECT_TRUE(sequence.is_behind_loss()) << "the token that makes the worker fail may be the twelfth";
  const Sequence fork = sequence.Fork(SequenceId{2}, 1);
  EXPECT_EQ(fork.reached(), 11);
  EXPECT_TRUE(fork.is_behind_loss());
  EXPECT_TRUE(answer(12));
  EXPECT_FALSE(sequence.is_behind_loss());
}

TEST(SequenceGroupTest, NothingIsLostOnceOnlyResultsAreMissing) {
  Request request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 1;
  SequenceGroup group(request, {0, 0}, SequenceId{1});
  EXPECT_EQ(group.NumTokensLost(), 0);
  group.sequences()[0]->OnSlicePlanned(2);
  EXPECT_EQ(group.NumTokensLost(), 2);
  group.sequences()[0]->OnSlicePlanned(1);
  EXPECT_EQ(group.NumTokensLost(), 0);
}

TEST(FreeRowsTest, LowestRowIsTakenFirst) {
  FreeRows rows(3);
  EXPECT_EQ(rows.Take(), RowId{0});
  EXPECT_EQ(rows.Take(), RowId{1});
  EXPECT_EQ(rows.Take(), RowId{2});
  EXPECT_EQ(rows.size(), 0);
  rows.Return(RowId{2});
  rows.Return(RowId{0});
  EXPECT_EQ(rows.Take(), RowId{0});
}

}  // namespace
}  // namespace quire
