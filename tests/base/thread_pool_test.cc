// SPDX-License-Identifier: Apache-2.0

#include "base/thread_pool.h"

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(ThreadPoolTest, JobsStartInTheirOrder) {
  std::vector<int> ran;
  {
    ThreadPool pool(1);
    for (int i = 0; i < 100; ++i) pool.Schedule([&ran, i] { ran.push_back(i); });
  }
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST(ThreadPoolTest, ThreadsThatSleptRunJobsOfManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kJobs = 500;
  std::atomic<int> num_ran = 0;
  ThreadPool pool(3);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kJobs; ++i) {
        // Waiting for each job lets the threads of the pool fall asleep between the jobs.
        const auto done = std::make_shared<std::promise<void>>();
        pool.Schedule([&num_ran, done] {
          ++num_ran;
          done->set_value();
        });
        done->get_future().wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_ran, kThreads * kJobs);
}

TEST(ThreadPoolTest, ABusyThreadDoesNotHoldUpTheOthers) {
  std::promise<void> release;
  std::promise<void> other;
  ThreadPool pool(2);
  pool.Schedule([&] { release.get_future().wait(); });
  pool.Schedule([&] { other.set_value(); });
  other.get_future().wait();
  release.set_value();
}

TEST(ThreadPoolTest, TheDestructorWaitsForTheJobsThatJobsSchedule) {
  std::atomic<int> num_ran = 0;
  {
    ThreadPool pool(2);
    pool.Schedule([&] {
      pool.Schedule([&] {
        pool.Schedule([&] { ++num_ran; });
        ++num_ran;
      });
      ++num_ran;
    });
  }
  EXPECT_EQ(num_ran, 3);
}

// The thread that schedules the job may still be in Schedule while another one destroys the pool.
TEST(ThreadPoolTest, AJobMayCauseTheDestructionOfItsPool) {
  for (int i = 0; i < 300; ++i) {
    auto pool = std::make_unique<ThreadPool>(1);
    std::promise<void> ran;
    std::thread scheduler([&, pool = pool.get()] { pool->Schedule([&] { ran.set_value(); }); });
    ran.get_future().wait();
    pool.reset();
    scheduler.join();
  }
}

}  // namespace
}  // namespace quire
