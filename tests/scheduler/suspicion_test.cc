#include "scheduler/suspicion.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// Loses the worker with slices in flight up to `position`.
void Lose(Suspicion* suspicion, int position, bool is_alone = true, bool is_named = false) {
  suspicion->OnLost(position, is_alone, is_named);
}

TEST(SuspicionTest, TwoLossesMakeASuspectAndTwoMoreAloneConvictIt) {
  Suspicion suspicion;
  Lose(&suspicion, 4);
  EXPECT_FALSE(suspicion.is_suspect());
  Lose(&suspicion, 4);
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_FALSE(suspicion.is_convicted()) << "it was no suspect yet when it ran alone";
  Lose(&suspicion, 4);
  EXPECT_FALSE(suspicion.is_convicted());
  Lose(&suspicion, 4, /*is_alone=*/false);
  EXPECT_FALSE(suspicion.is_convicted());
  Lose(&suspicion, 4);
  EXPECT_TRUE(suspicion.is_convicted());
  EXPECT_EQ(suspicion.num_losses(), 5);
}

TEST(SuspicionTest, ANamedRequestIsSuspectAtOnceAndConvictedByOneLoneLoss) {
  Suspicion suspicion;
  Lose(&suspicion, 4, /*is_alone=*/false, /*is_named=*/true);
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_FALSE(suspicion.is_convicted());
  Lose(&suspicion, 4);
  EXPECT_TRUE(suspicion.is_convicted());
}

TEST(SuspicionTest, WhoeverGetsBeyondTheSlicesThatWereLostIsInnocent) {
  Suspicion suspicion;
  suspicion.OnAnswered(8);
  Lose(&suspicion, 12);
  Lose(&suspicion, 10);
  EXPECT_FALSE(suspicion.OnAnswered(8));
  EXPECT_FALSE(suspicion.OnAnswered(11)) << "the token that kills may be the twelfth";
  EXPECT_TRUE(suspicion.is_suspect());
  EXPECT_TRUE(suspicion.OnAnswered(12));
  EXPECT_FALSE(suspicion.is_suspect());
  EXPECT_EQ(suspicion.num_losses(), 0);
  EXPECT_FALSE(suspicion.OnAnswered(13));
}

TEST(SuspicionTest, SlicesThatWereAnsweredBeforeDoNotMakeASuspect) {
  Suspicion suspicion;
  suspicion.OnAnswered(100);
  for (int i = 1; i < Suspicion::kAnyLossesToSuspect; ++i) Lose(&suspicion, 50);
  EXPECT_FALSE(suspicion.is_suspect());
}

TEST(SuspicionTest, ARequestThatFailsItsWorkerAnywhereIsGivenUpAfterABoundedNumberOfLosses) {
  Suspicion suspicion;
  suspicion.OnAnswered(100);
  int num_losses = 0;
  while (!suspicion.is_convicted() && num_losses < 100) {
    Lose(&suspicion, 50);
    ++num_losses;
  }
  EXPECT_EQ(num_losses, Suspicion::kAnyLossesToConvict);
}

}  // namespace
}  // namespace quire
