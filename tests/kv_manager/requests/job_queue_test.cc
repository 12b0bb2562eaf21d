// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

TEST(JobQueueTest, TheFirstJobNeedsARunAndItRunsAll) {
  JobQueue queue;
  std::vector<int> ran;
  EXPECT_FALSE(queue.is_running());
  EXPECT_TRUE(queue.Add([&] { ran.push_back(1); }));
  EXPECT_FALSE(queue.Add([&] { ran.push_back(2); })) << "a Run is due";
  EXPECT_TRUE(queue.is_running());
  queue.Run();
  EXPECT_THAT(ran, ElementsAre(1, 2));
  EXPECT_FALSE(queue.is_running());
  EXPECT_TRUE(queue.Add([] {}));
}

TEST(JobQueueTest, JobsThatJobsAddRunInTheSameRun) {
  JobQueue queue;
  std::vector<int> ran;
  queue.Add([&] {
    ran.push_back(1);
    EXPECT_FALSE(queue.Add([&] { ran.push_back(3); }));
  });
  queue.Add([&] { ran.push_back(2); });
  queue.Run();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
}

// Several threads add, several threads of a pool run. The counter has no lock: only the queue protects it.
TEST(JobQueueTest, JobsOfManyThreadsRunOneAtATime) {
  constexpr int kThreads = 4;
  constexpr int kJobs = 500;
  JobQueue queue;
  int num_ran = 0;
  std::vector<int> last(kThreads, -1);
  {
    ThreadPool pool(3);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kJobs; ++i) {
          const bool needs_run = queue.Add([&, t, i] {
            ++num_ran;
            EXPECT_LT(last[t], i) << "in the order in which they were added";
            last[t] = i;
          });
          if (needs_run) pool.Schedule([&] { queue.Run(); });
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(num_ran, kThreads * kJobs);
}

}  // namespace
}  // namespace quire
