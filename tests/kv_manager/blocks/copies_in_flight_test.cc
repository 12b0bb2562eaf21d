// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/blocks/copies_in_flight.h"

#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(CopiesInFlightTest, BothEndsOfACopyStayReferencedUntilItsStepIsCommitted) {
  BlockPool pool(2);
  CopiesInFlight copies(2);
  copies.Add(StepId{3}, pool.Take(), pool.Take());
  EXPECT_EQ(pool.num_free(), 0);
  copies.DropUntil(StepId{2});
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(copies.CountOf(BlockId{0}), 1);
  EXPECT_EQ(copies.CountOf(BlockId{1}), 1);
  copies.DropUntil(StepId{3});
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(copies.CountOf(BlockId{0}), 0);
}

TEST(CopiesInFlightTest, StepThatBeginsAgainDropsItsOwnCopiesOnly) {
  BlockPool pool(4);
  CopiesInFlight copies(4);
  copies.Add(StepId{1}, pool.Take(), pool.Take());
  copies.Add(StepId{2}, pool.Take(), pool.Take());
  copies.DropFrom(StepId{2});
  EXPECT_EQ(copies.copies().size(), 1u);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(CopiesInFlightTest, SourceIsFoundOnlyInTheStepOfTheCopy) {
  BlockPool pool(2);
  CopiesInFlight copies(2);
  BlockRef source = pool.Take();
  BlockRef destination = pool.Take();
  const BlockId source_id = source.id();
  const BlockId destination_id = destination.id();
  copies.Add(StepId{1}, std::move(source), std::move(destination));
  EXPECT_EQ(copies.FindSource(destination_id, StepId{1}), source_id);
  EXPECT_EQ(copies.FindSource(destination_id, StepId{2}), std::nullopt);
  EXPECT_EQ(copies.FindSource(source_id, StepId{1}), std::nullopt);
}

}  // namespace
}  // namespace quire
