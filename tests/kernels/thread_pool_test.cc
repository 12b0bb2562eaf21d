// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

namespace quire::cpu {
namespace {

TEST(ThreadPoolTest, RunsEveryItemOnceAndWaitsForAll) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int num_items = 0; num_items < 60; ++num_items) {
      std::vector<int> runs(num_items, 0);  // Not atomic: one thread runs each item, and ForEach() orders the reads.
      std::atomic<bool> thread_in_range = true;
      pool.ForEach(num_items, [&](int item, int thread) {
        ++runs[item];
        if (thread < 0 || thread >= num_threads) thread_in_range = false;
      });
      EXPECT_EQ(runs, std::vector<int>(num_items, 1));
      EXPECT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPoolTest, ALoopSeesWhatTheOneBeforeWrote) {
  ThreadPool pool(4);
  std::vector<int> values(100, 0);
  for (int round = 0; round < 500; ++round) {
    // Items move by one place, so that most are read by another thread than the one that wrote them.
    std::vector<int> next(100);
    pool.ForEach(100, [&](int item, int) { next[item] = values[(item + 1) % 100] + 1; });
    values.swap(next);
  }
  EXPECT_EQ(values, std::vector<int>(100, 500));
}

TEST(ThreadPoolTest, BindsEachThreadToACoreOfItsOwn) {
  std::thread owner([] {  // A separate thread, because the test's own thread would stay bound to a core.
    const int num_cores = int(std::thread::hardware_concurrency());
    ThreadPool one_too_many(num_cores + 1);
    EXPECT_FALSE(one_too_many.BindToCores());
    ThreadPool pool(num_cores);
    EXPECT_TRUE(pool.BindToCores());
    std::vector<int> cores(num_cores, -1);
    std::atomic<int> num_waiting = 0;
    pool.ForEach(num_cores, [&](int item, int) {
      cpu_set_t own;
      ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof own, &own), 0);
      EXPECT_EQ(CPU_COUNT(&own), 1);
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &own)) cores[item] = core;
      }
      // Wait until every thread has an item.
      ++num_waiting;
      while (num_waiting < num_cores) std::this_thread::yield();
    });
    EXPECT_EQ(std::set<int>(cores.begin(), cores.end()).size(), cores.size());
  });
  owner.join();
}

#if !defined(QUIRE_THREAD_SANITIZER)  // It keeps signals back until a thread calls the system, which these do not.

std::atomic<bool> g_is_stopped = false;
std::atomic<bool> g_may_go_on = false;

void StopHere(int /*signal*/) {
  g_is_stopped = true;
  while (!g_may_go_on) continue;
}

// The thread is stopped as if the operating system had given its core to another program.
TEST(ThreadPoolTest, ALoopDoesNotWaitForAThreadThatHasNoItem) {
  ThreadPool pool(2);
  pthread_t other{};
  std::atomic<int> num_waiting = 0;
  pool.ForEach(2, [&](int, int thread) {
    if (thread == 1) other = pthread_self();
    ++num_waiting;
    while (num_waiting < 2) std::this_thread::yield();
  });
  std::signal(SIGUSR1, StopHere);
  ASSERT_EQ(pthread_kill(other, SIGUSR1), 0);
  while (!g_is_stopped) std::this_thread::yield();
  std::thread limit([] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!g_may_go_on && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    g_may_go_on = true;
  });
  std::set<int> items;
  for (int round = 0; round < 3; ++round) {
    pool.ForEach(10, [&](int item, int thread) {
      EXPECT_EQ(thread, 0);
      items.insert(10 * round + item);
    });
  }
  EXPECT_EQ(items.size(), 30);
  EXPECT_FALSE(g_may_go_on.exchange(true)) << "the loop has waited for a thread that had no item";
  limit.join();
  std::atomic<int> sum = 0;
  pool.ForEach(100, [&](int item, int) { sum += item; });
  EXPECT_EQ(sum, 4950);
}

#endif

TEST(ThreadPoolTest, WakesUpAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> sum = 0;
    pool.ForEach(10, [&](int item, int) { sum += item; });
    EXPECT_EQ(sum, 45);
    // This takes longer than the threads spin.
    std::atomic<int64_t> busy = 0;
    for (int i = 0; i < 2'000'000; ++i) busy.fetch_add(i, std::memory_order_relaxed);
  }
}

}  // namespace
}  // namespace quire::cpu
