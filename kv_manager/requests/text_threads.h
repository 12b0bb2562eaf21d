// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_
#define QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "base/fair_queue.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kv_manager/requests/rpc_counts.h"

namespace quire {

// Tokenizing this much takes a millisecond or two, which gRPC's threads can spare.
inline constexpr size_t kShortTextBytes = 16 << 10;
// So much takes a tenth of a second. A guide that is to be compiled counts as much.
inline constexpr size_t kVeryLongTextBytes = 1 << 20;

// The threads that work on text, so that neither the step loops nor gRPC's threads wait for it: input threads tokenize
// prompts and compile guides, output threads turn generated tokens into text. Very long jobs have threads of their own
// with a low priority, because a worker on the same machine would be late with its steps. The destructor runs all jobs
// to the end. Thread-safe.
class TextThreads {
 public:
  // `num_threads` of each kind. At most `max_waiting_texts` jobs wait for an input thread, and as many for one with a
  // low priority. `counts` is borrowed and counts the refused ones.
  TextThreads(int num_threads, size_t max_waiting_texts, RpcCounts* counts);

  // Runs `job` of a tenant, which tokenizes or decodes `num_bytes` of text: within this call when they are few, on an
  // input thread when they are many. Tenants take turns there. RESOURCE_EXHAUSTED when too many jobs wait already; then
  // `job` does not run.
  absl::Status RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job);

  // Runs `job` on an output thread.
  void RunOutput(std::function<void()> job) { output_.Schedule(std::move(job)); }

 private:
  // Input threads, and the jobs that wait for them.
  class Lane {
   public:
    Lane(int num_threads, bool has_low_priority) : has_low_priority_(has_low_priority), threads_(num_threads) {}
    // Returns false, and drops `job`, when `max_waiting` jobs wait already.
    bool TryRun(const std::string& tenant, std::function<void()> job, size_t max_waiting) QUIRE_EXCLUDES(mutex_);

   private:
    // Runs the job whose tenant has its turn.
    void RunNext() QUIRE_EXCLUDES(mutex_);

    const bool has_low_priority_;
    Mutex mutex_;
    FairQueue<std::function<void()>> jobs_ QUIRE_GUARDED_BY(mutex_);
    ThreadPool threads_;
  };

  const size_t max_waiting_texts_;
  RpcCounts* const counts_;
  ThreadPool output_;
  Lane input_;  // These two end first, because their jobs may start output jobs.
  Lane very_long_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_
