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

// The threads that work on text, so that neither the step loops nor gRPC's threads wait for it: input threads tokenize
// prompts and compile guides, output threads turn generated tokens into text. The destructor runs all jobs to the end.
// Thread-safe.
class TextThreads {
 public:
  // `num_threads` of each kind. At most `max_waiting_texts` jobs wait for an input thread. `counts` is borrowed and
  // counts the refused ones.
  TextThreads(int num_threads, size_t max_waiting_texts, RpcCounts* counts);

  // Runs `job` of a tenant, which tokenizes or decodes `num_bytes` of text: within this call when they are few, on an
  // input thread when they are many. Tenants take turns there. RESOURCE_EXHAUSTED when too many jobs wait already; then
  // `job` does not run.
  absl::Status RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job);

  // Runs `job` on an output thread.
  void RunOutput(std::function<void()> job) { output_.Schedule(std::move(job)); }

 private:
  bool TryAddInput(const std::string& tenant, std::function<void()> job) QUIRE_EXCLUDES(mutex_);
  // Runs the job whose tenant has its turn.
  void RunNextInput() QUIRE_EXCLUDES(mutex_);

  const size_t max_waiting_texts_;
  RpcCounts* const counts_;
  ThreadPool output_;
  Mutex mutex_;
  FairQueue<std::function<void()>> input_jobs_ QUIRE_GUARDED_BY(mutex_);  // Those that wait for an input thread.
  ThreadPool input_;  // Ends first, because its jobs may start output jobs.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_
