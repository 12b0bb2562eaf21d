// SPDX-License-Identifier: Apache-2.0

#include "base/handoff_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HandoffQueueTest, TheFirstPushMakesAConsumerDueUntilItFindsNothing) {
  HandoffQueue<int> queue;
  EXPECT_TRUE(queue.is_idle());
  EXPECT_TRUE(queue.Push(1));
  EXPECT_FALSE(queue.Push(2));
  EXPECT_FALSE(queue.BecomeIdle()) << "two values wait";
  EXPECT_THAT(queue.TakeAll(), ElementsAre(1, 2));
  EXPECT_FALSE(queue.is_idle()) << "the consumer has not finished";
  EXPECT_FALSE(queue.Push(3));
  EXPECT_FALSE(queue.BecomeIdle());
  EXPECT_THAT(queue.TakeAll(), ElementsAre(3));
  EXPECT_THAT(queue.TakeAll(), IsEmpty());
  EXPECT_TRUE(queue.BecomeIdle());
  EXPECT_TRUE(queue.is_idle());
  EXPECT_TRUE(queue.Push(4));
}

TEST(HandoffQueueTest, WhatIsNotTakenIsDestroyedWithTheQueue) {
  const auto value = std::make_shared<int>(1);
  {
    HandoffQueue<std::shared_ptr<int>> queue;
    queue.Push(value);
    queue.TakeAll();
    queue.Push(value);
    queue.Push(value);
    EXPECT_EQ(value.use_count(), 3);
  }
  EXPECT_EQ(value.use_count(), 1);
}

// Whoever makes a consumer due is the next consumer itself. What consumers share has no lock, so that ThreadSanitizer
// sees whether there are ever two.
TEST(HandoffQueueTest, EveryValueIsTakenOnceInTheOrderOfItsThreadByOneConsumerAtATime) {
  constexpr int kThreads = 4;
  constexpr int kValues = 5000;
  HandoffQueue<std::pair<int, int>> queue;
  std::vector<int> next(kThreads, 0);
  std::atomic<int> num_consumers = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kValues; ++i) {
        if (!queue.Push({t, i})) continue;
        EXPECT_EQ(++num_consumers, 1);
        while (true) {
          const std::vector<std::pair<int, int>> values = queue.TakeAll();
          for (const auto& [thread, value] : values) EXPECT_EQ(value, next[thread]++);
          if (!values.empty()) continue;
          --num_consumers;
          if (queue.BecomeIdle()) break;
          EXPECT_EQ(++num_consumers, 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(next, ::testing::Each(kValues));
  EXPECT_TRUE(queue.is_idle());
}

}  // namespace
}  // namespace quire
