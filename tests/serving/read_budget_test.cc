// SPDX-License-Identifier: Apache-2.0

#include "serving/read_budget.h"

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr int64_t kSecondUs = 1'000'000;

TEST(ReadBudgetTest, AConnectionThatMakesLittleWorkNeverWaits) {
  ReadBudget budget;
  for (int64_t ms = 0; ms < 1000; ms += 10) {
    EXPECT_GT(budget.BytesToRead(ms * 1000), 0U);
    budget.AddBytes(300);
    budget.AddWork(10 * ReadBudget::kFreeUsPerMs);
  }
}

TEST(ReadBudgetTest, OneThatMakesMuchWorkWaitsForATurnThatCostsIt) {
  ReadBudget budget;
  budget.AddWork(ReadBudget::kFreeUs + 300);
  EXPECT_EQ(budget.BytesToRead(0), 0U);
  EXPECT_EQ(budget.PriceOfTurn(), ReadBudget::kTurnUs + 300);
  budget.TakeTurn();
  EXPECT_GT(budget.BytesToRead(0), 0U);
  budget.AddWork(ReadBudget::kTurnUs);
  EXPECT_EQ(budget.BytesToRead(0), 0U);
}

TEST(ReadBudgetTest, TimeMakesRoomForSomeWork) {
  ReadBudget budget;
  budget.AddWork(2 * ReadBudget::kFreeUs);
  EXPECT_EQ(budget.BytesToRead(0), 0U);
  EXPECT_EQ(budget.BytesToRead(ReadBudget::kFreeUs / ReadBudget::kFreeUsPerMs * 1000), 0U);
  EXPECT_GT(budget.BytesToRead(kSecondUs), 0U);
  budget.AddWork(ReadBudget::kFreeUs);
  EXPECT_EQ(budget.BytesToRead(kSecondUs), 0U) << "a silent connection saves no more";
}

// In the first connection 13 bytes make a call. The second one brings a large message.
TEST(ReadBudgetTest, TheMoreWorkSomeBytesMakeTheLessIsRead) {
  ReadBudget calls, message;
  size_t of_calls = 0, of_message = 0;
  for (int i = 0; i < 20; ++i) {
    calls.TakeTurn();
    of_calls = calls.BytesToRead(0);
    calls.AddBytes(of_calls);
    calls.AddWork(static_cast<int64_t>(of_calls) / 13 * 100);
    message.TakeTurn();
    of_message = message.BytesToRead(0);
    message.AddBytes(of_message);
    message.AddWork(5 + static_cast<int64_t>(of_message) / 1024);
  }
  EXPECT_LE(of_calls, 70U);
  EXPECT_GE(of_message, 30'000U);
}

}  // namespace
}  // namespace quire
