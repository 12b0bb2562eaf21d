// SPDX-License-Identifier: Apache-2.0

#include "gateway/web/fair_queue.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(FairQueueTest, CallersTakeTurns) {
  FairQueue<int> queue;
  for (int i = 0; i < 3; ++i) queue.Push("greedy", i);
  queue.Push("b", 10);
  queue.Push("c", 20);
  std::string order;
  while (!queue.empty()) order += std::to_string(queue.Pop()) + " ";
  EXPECT_EQ(order, "0 10 20 1 2 ");
  queue.Push("greedy", 5);
  EXPECT_EQ(queue.Pop(), 5);
  EXPECT_TRUE(queue.empty());
}

TEST(FairQueueTest, ACallerThatComesAgainWaitsForTheOthers) {
  FairQueue<int> queue;
  queue.Push("a", 0);
  queue.Push("b", 10);
  queue.Push("a", 1);
  EXPECT_EQ(queue.Pop(), 0);
  queue.Push("a", 2);
  EXPECT_EQ(queue.Pop(), 10);
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
}

}  // namespace
}  // namespace quire
