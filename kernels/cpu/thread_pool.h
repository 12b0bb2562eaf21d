// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_THREAD_POOL_H_
#define QUIRE_KERNELS_CPU_THREAD_POOL_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quire::cpu {

// Threads that run the items of one loop at a time. Items are handed out one by one to free threads, so their results
// must not depend on the thread that runs them. The pool is owned by one thread, which takes part as thread 0.
class ThreadPool {
 public:
  // REQUIRES: num_threads >= 1, counting the calling thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Binds every thread to its own core; the calling thread is thread 0. Then no thread waits for a core while another
  // core is idle. Does nothing and returns false unless the number of threads equals the number of cores that the
  // calling thread may use, because with fewer threads the operating system schedules better. Threads that the caller
  // starts later share its core.
  bool BindToCores();

  int num_threads() const { return int(threads_.size()) + 1; }

  // Calls body(item, thread) for every item in [0, num_items), with thread in [0, num_threads()). Returns when all are
  // done.
  template <typename Body>
  void ForEach(int num_items, Body&& body) {
    Run(
        num_items, [](void* context, int item, int thread) { (*static_cast<Body*>(context))(item, thread); }, &body);
  }

 private:
  using Function = void (*)(void* context, int item, int thread);

  void Run(int num_items, Function function, void* context);
  // Runs items of the current loop until none is left to hand out.
  void WorkOnItems(int thread);
  void ThreadMain(int thread);
  uint32_t AwaitLoop(uint32_t last_loop);

  // The current loop. The caller writes these before it stores the loop's items_. A thread reads them only while it has
  // an item, because the loop cannot end before the item is done.
  Function function_ = nullptr;
  void* context_ = nullptr;

  alignas(64) std::atomic<uint32_t> loop_{0};  // Number of the current loop. Threads without an item wait for a change.
  // The current loop's number of items in the upper half, and the number of times that a thread has asked for one in
  // the lower half. Both are one value, so that a late thread never compares the number of an item in one loop with the
  // number of items of another.
  alignas(64) std::atomic<uint64_t> items_{0};
  alignas(64) std::atomic<int> num_left_{0};  // Items of the current loop that are not done.
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_THREAD_POOL_H_
