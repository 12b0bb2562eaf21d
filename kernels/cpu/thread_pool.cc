// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire::cpu {
namespace {

// The loops of one step follow each other within microseconds. So a thread first spins for about 20 us and then sleeps,
// because between steps other programs need the cores.
constexpr int kSpins = 500;

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename T>
void AwaitChange(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  for (int thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this, thread] { ThreadMain(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool ThreadPool::BindToCores() {
  cpu_set_t allowed;
  if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return false;
  if (CPU_COUNT(&allowed) != num_threads()) return false;
  int core = -1;
  for (int thread = 0; thread < num_threads(); ++thread) {
    do ++core;
    while (!CPU_ISSET(core, &allowed));
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(core, &own);
    // This can fail only when cores are being taken away. The thread then keeps its old affinity.
    pthread_setaffinity_np(thread == 0 ? pthread_self() : threads_[thread - 1].native_handle(), sizeof own, &own);
  }
  return true;
}

void ThreadPool::Run(int num_items, Function function, void* context) {
  if (threads_.empty() || num_items <= 1) {
    for (int item = 0; item < num_items; ++item) function(context, item, 0);
    return;
  }
  function_ = function;
  context_ = context;
  num_left_.store(num_items, std::memory_order_relaxed);
  items_.store(uint64_t(num_items) << 32, std::memory_order_release);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  WorkOnItems(0);
  for (int left; (left = num_left_.load(std::memory_order_acquire)) != 0;) AwaitChange(num_left_, left);
}

void ThreadPool::WorkOnItems(int thread) {
  int num_done = 0;
  for (;;) {
    const uint64_t items = items_.fetch_add(1, std::memory_order_acquire);
    const uint32_t item = uint32_t(items);
    if (item >= uint32_t(items >> 32)) break;
    function_(context_, int(item), thread);
    ++num_done;
  }
  if (num_done > 0 && num_left_.fetch_sub(num_done, std::memory_order_release) == num_done) num_left_.notify_one();
}

uint32_t ThreadPool::AwaitLoop(uint32_t last_loop) {
  AwaitChange(loop_, last_loop);
  return loop_.load(std::memory_order_acquire);
}

// A thread may miss loops: the others do not wait for one that has no core.
void ThreadPool::ThreadMain(int thread) {
  uint32_t loop = 0;
  for (;;) {
    loop = AwaitLoop(loop);
    if (stopping_.load(std::memory_order_relaxed)) return;
    WorkOnItems(thread);
  }
}

}  // namespace quire::cpu
