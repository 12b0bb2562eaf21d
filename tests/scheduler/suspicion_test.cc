// SPDX-License-Identifier: Apache-2.0

#include "scheduler/suspicion.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(SuspicionTest, TwoLossesMakeASuspectAndTwoMoreAloneConvictIt) {
  Suspicion suspicion;
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_FALSE(suspicion.is_suspect());
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_FALSE(suspicion.is_convicted()) << "it was no suspect yet when it was lost";
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_FALSE(suspicion.is_convicted());
  suspicion.OnLost(/*is_at_front=*/false, /*is_named=*/false);
  EXPECT_FALSE(suspicion.is_convicted()) << "its slices were only recomputed";
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_TRUE(suspicion.is_convicted());
  EXPECT_EQ(suspicion.num_losses(), 5);
}

TEST(SuspicionTest, ANamedRequestIsSuspectAtOnceAndConvictedByOneLoneLoss) {
  Suspicion suspicion;
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/true);
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_FALSE(suspicion.is_convicted());
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_TRUE(suspicion.is_convicted());
}

TEST(SuspicionTest, OnlyProgressSinceTheLastLossCounts) {
  Suspicion suspicion;
  suspicion.OnFarther();
  EXPECT_TRUE(suspicion.has_got_farther());
  suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/false);
  EXPECT_FALSE(suspicion.has_got_farther());
}

TEST(SuspicionTest, AClearedRequestHasNoLosses) {
  Suspicion suspicion;
  for (int i = 0; i < 2; ++i) suspicion.OnLost(/*is_at_front=*/true, /*is_named=*/true);
  suspicion.Clear();
  EXPECT_FALSE(suspicion.is_suspect());
  EXPECT_FALSE(suspicion.is_convicted());
  EXPECT_EQ(suspicion.num_losses(), 0);
}

TEST(SuspicionTest, SlicesThatWereAnsweredBeforeDoNotMakeASuspect) {
  Suspicion suspicion;
  for (int i = 1; i < Suspicion::kAnyLossesToSuspect; ++i) {
    suspicion.OnLost(/*is_at_front=*/false, /*is_named=*/false);
  }
  EXPECT_FALSE(suspicion.is_suspect());
}

TEST(SuspicionTest, ARequestThatFailsItsWorkerAnywhereIsGivenUpAfterABoundedNumberOfLosses) {
  Suspicion suspicion;
  int num_losses = 0;
  while (!suspicion.is_convicted() && num_losses < 100) {
    suspicion.OnLost(/*is_at_front=*/false, /*is_named=*/false);
    ++num_losses;
  }
  EXPECT_EQ(num_losses, Suspicion::kAnyLossesToConvict);
}

}  // namespace
}  // namespace quire
