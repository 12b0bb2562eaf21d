// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_MIXED_LOAD_H_
#define QUIRE_TESTS_CHAOS_MIXED_LOAD_H_

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "client/library/client.h"
#include "tests/chaos/mixed_work.h"
#include "tests/random.h"

namespace quire {

// Clients that send the work repeatedly, each with a thread and pauses of its own. They read some streams to the end,
// cancel others, set short deadlines, and send some requests as a batch. Every output is compared with the answer book.
// Only a request with a short deadline may fail.
class MixedLoad {
 public:
  struct Counts {
    int64_t whole = 0;      // Requests that were read to their end.
    int64_t cancelled = 0;  // Streams that the client has ended.
    int64_t expired = 0;    // Requests that were refused or ended because of their short deadlines.
    int64_t errors = 0;     // Wrong outputs, and requests that have failed.
    double slowest_s = 0;   // The longest time of a request that was read to its end.
  };

  // `book` is borrowed.
  MixedLoad(const std::string& endpoint, const AnswerBook* book, int num_clients, uint64_t seed);
  ~MixedLoad();

  // Returns when no request runs any more. Until Resume, no other one starts.
  void Pause();
  void Resume();
  // Waits until `num` more requests were read to their end. False when that takes over `timeout_s`.
  bool WaitForProgress(int num, int timeout_s);

  Counts counts() const;
  std::vector<std::string> errors() const;  // The first ones.

 private:
  // What a client does with a stream.
  struct Plan {
    absl::Duration timeout;
    bool has_short_deadline = false;
    int num_reads = 0;  // Number of responses after which the client cancels the call; 0: never.
  };

  void RunClient(uint64_t seed);
  // Waits while the load is paused. False when it is over.
  bool Begin() QUIRE_EXCLUDES(mutex_);
  void RunCall(Client* client, int item, const Plan& plan);
  void RunBatch(Client* client, const std::vector<int>& items);
  // A request that should be read to its end has ended.
  void OnEnd(int item, const absl::Status& status, const Outputs& outputs, bool has_short_deadline, double seconds);
  void AddError(const std::string& text) QUIRE_REQUIRES(mutex_);

  const std::string endpoint_;
  const AnswerBook* const book_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_paused_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_over_ QUIRE_GUARDED_BY(mutex_) = false;
  int num_running_ QUIRE_GUARDED_BY(mutex_) = 0;  // Calls that run.
  Counts counts_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::string> errors_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_MIXED_LOAD_H_
