// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_RPC_ANSWER_WATCH_H_
#define QUIRE_KV_MANAGER_RPC_ANSWER_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mutex.h"

namespace quire {

// Limits the memory of answers that were given to gRPC and wait for clients to read them. gRPC has no limit for them: a
// client that opens no window for its calls leaves all of their answers in memory.
//
// When the answers have too much, calls are cancelled: the oldest answer if it has waited for two seconds, because a
// client that reads has none like that. Otherwise the oldest of the address whose clients have left most unread.
// Thread-safe.
class AnswerWatch {
 public:
  enum class Wait {
    kLimited,    // The client must read the answer within the timeout.
    kUnlimited,  // Something else limits the time.
  };
  // Ends the call. A thread of the watch calls it, maybe when the answer has just been read.
  using CancelCall = std::function<void()>;

  // Answers up to this size do not count. The port counts the same for each call that has no complete answer.
  static constexpr int64_t kSmallBytes = 16 << 10;

  // With `has_thread` a thread calls Check when it is time to. Tests can do it themselves.
  AnswerWatch(int64_t max_bytes, absl::Duration timeout, const Clock* clock, bool has_thread = true);
  ~AnswerWatch();
  AnswerWatch(const AnswerWatch&) = delete;
  AnswerWatch& operator=(const AnswerWatch&) = delete;

  // An answer to `peer`, as gRPC names it, waits to be read. Returns the id of the answer, which is above 0.
  uint64_t Begin(const std::string& peer, int64_t num_bytes, Wait wait, CancelCall cancel_call);
  // Sets the present size of the answer. Without effect when its call was cancelled, as for End.
  void Resize(uint64_t id, int64_t num_bytes);
  // The answer was read, or never will be.
  void End(uint64_t id);

  // Cancels the calls that are beyond the limits.
  void Check();

 private:
  struct Answer {
    std::string address;
    int64_t num_bytes;
    int64_t begin_us;
    int64_t deadline_us;
    CancelCall cancel_call;
  };
  // The key is the id, which is also the order of their begin.
  using Answers = std::map<uint64_t, Answer>;

  void Run();
  // The answer that is to go because all have too much.
  Answers::iterator FindVictim(int64_t now_us) QUIRE_REQUIRES(mutex_);
  void Add(Answer* answer, int64_t num_bytes) QUIRE_REQUIRES(mutex_);
  CancelCall Remove(Answers::iterator answer) QUIRE_REQUIRES(mutex_);

  const int64_t max_bytes_;
  const absl::Duration timeout_;
  const Clock* const clock_;
  LogLimiter log_limiter_;

  mutable Mutex mutex_;
  CondVar changed_;
  Answers answers_ QUIRE_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> address_bytes_ QUIRE_GUARDED_BY(mutex_);  // All are above 0.
  int64_t num_bytes_ QUIRE_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ QUIRE_GUARDED_BY(mutex_) = 1;
  bool is_stopping_ QUIRE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_RPC_ANSWER_WATCH_H_
