// SPDX-License-Identifier: Apache-2.0

#include "base/fair_queue.h"

#include <string>
#include <utility>

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

TEST(FairQueueTest, AFullQueueTakesTheFirstJobOfACallerOnly) {
  FairQueue<char> queue;
  const auto add = [&](const std::string& caller, char job) { return queue.TryPush(caller, std::move(job), 4); };
  EXPECT_TRUE(add("acme", 'a'));
  EXPECT_TRUE(add("acme", 'b'));
  EXPECT_TRUE(add("acme", 'c'));
  EXPECT_TRUE(add("initech", 'i'));
  EXPECT_FALSE(add("acme", 'd')) << "four jobs wait";
  EXPECT_TRUE(add("hooli", 'h')) << "the first one of a caller finds room";
  EXPECT_FALSE(add("hooli", 'k'));
  EXPECT_FALSE(queue.TryPush("new", 'n', 0));
  std::string order;
  while (!queue.empty()) order += queue.Pop();
  EXPECT_EQ(order, "aihbc");
}

}  // namespace
}  // namespace quire
