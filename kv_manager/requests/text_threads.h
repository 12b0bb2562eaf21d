// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_
#define QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/fair_queue.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kv_manager/requests/rpc_counts.h"

namespace quire {

// Tokenizing this much takes a tenth of a millisecond, which gRPC's threads can spare.
inline constexpr size_t kTinyTextBytes = 1 << 10;
// This much takes a millisecond or two.
inline constexpr size_t kShortTextBytes = 16 << 10;
// Parsing this much takes a tenth of a millisecond.
inline constexpr size_t kShortMessageBytes = 64 << 10;
// Tokenizing this much takes a tenth of a second. A guide that is to be compiled has the same cost.
inline constexpr size_t kVeryLongTextBytes = 1 << 20;
// Tokenizing takes more than a hundred times the memory of a text. So very long texts that are tokenized at the same
// time have at most this number of bytes together, unless one of them alone has more.
inline constexpr size_t kMaxRunningBytes = 4 << 20;

// The threads that work on text, so that neither the step loops nor gRPC's threads wait for it: input threads tokenize
// prompts and compile guides, output threads turn generated tokens into text. Short jobs, and the messages of calls
// that send many, have input threads of their own, so that they do not wait behind long texts. Very long jobs have
// threads with a low priority, because a worker on the same machine would be late with its steps. The destructor runs
// all jobs to the end. Thread-safe.
class TextThreads {
 public:
  // `num_threads` of each kind. At most `max_waiting_texts` long jobs wait for an input thread, and the same number
  // for one with a low priority. All jobs that wait or run have at most `max_bytes` of text, and the jobs of one tenant
  // half of it;
  // only a job that is alone may have more. `counts` is borrowed and counts the refused ones.
  TextThreads(int num_threads, size_t max_waiting_texts, size_t max_bytes, RpcCounts* counts);

  // Runs `job` of a tenant, which tokenizes or decodes `num_bytes` of text: within this call when they are very few, on
  // an input thread when they are more. Tenants take turns there. RESOURCE_EXHAUSTED when too many long jobs wait
  // already, or the jobs have too many bytes; then `job` does not run.
  absl::Status RunInput(const std::string& tenant, size_t num_bytes, std::function<void()> job);

  // Runs `job` of a tenant, which parses the message of a call and handles it: within this call when the message is
  // short, on an input thread when it is longer. gRPC has few threads, and the tokens of all streams need them. Errors
  // as for RunInput when the message is very long.
  absl::Status RunParse(const std::string& tenant, size_t num_bytes, std::function<void()> job);

  // Runs `job` of a tenant, which handles one of the many messages that a call may send, on an input thread for short
  // jobs. Tenants take turns. The caller lets only one job of each call wait, so that calls take turns as well.
  void RunMessage(const std::string& tenant, std::function<void()> job);

  // Runs `job` on an output thread.
  void RunOutput(std::function<void()> job) { output_.Schedule(std::move(job)); }

 private:
  struct Job {
    std::function<void()> run;
    size_t num_bytes = 0;
  };

  // Input threads, and the jobs that wait for them.
  class Lane {
   public:
    static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();

    // Jobs that run at the same time have at most `max_running_bytes` together. A job with more runs alone.
    Lane(int num_threads, size_t max_running_bytes, bool has_low_priority)
        : max_running_bytes_(max_running_bytes), has_low_priority_(has_low_priority), threads_(num_threads) {}
    // Returns false, and drops `job`, when `max_waiting` jobs wait already.
    bool TryRun(const std::string& tenant, Job job, size_t max_waiting) QUIRE_EXCLUDES(mutex_);

   private:
    // Runs jobs until none may run. The tenants take turns.
    void RunAll() QUIRE_EXCLUDES(mutex_);

    const size_t max_running_bytes_;
    const bool has_low_priority_;
    Mutex mutex_;
    FairQueue<Job> jobs_ QUIRE_GUARDED_BY(mutex_);
    size_t running_bytes_ QUIRE_GUARDED_BY(mutex_) = 0;
    ThreadPool threads_;
  };

  // A job of the tenant waits or runs from here on. Returns an error when its bytes are too many.
  absl::Status Hold(const std::string& tenant, size_t num_bytes) QUIRE_EXCLUDES(mutex_);
  // The job is over.
  void LetGo(const std::string& tenant, size_t num_bytes) QUIRE_EXCLUDES(mutex_);

  const size_t max_waiting_texts_;
  const size_t max_bytes_;
  RpcCounts* const counts_;
  Mutex mutex_;
  size_t sum_ QUIRE_GUARDED_BY(mutex_) = 0;  // The bytes of all jobs in held_.
  // The bytes of the jobs of each tenant that wait or run. None is 0.
  absl::flat_hash_map<std::string, size_t> held_ QUIRE_GUARDED_BY(mutex_);
  ThreadPool output_;
  Lane input_;  // These three end first, because their jobs may start output jobs.
  Lane very_long_;
  Lane short_;  // Its jobs may start jobs of the other two.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_TEXT_THREADS_H_
