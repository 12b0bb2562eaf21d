// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_BYSTANDERS_H_
#define QUIRE_TESTS_CHAOS_BYSTANDERS_H_

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/library/client.h"

namespace quire {

// Long streams that run beside a fault and are not hit by it. They show what the fault costs others. Thread-safe.
class Bystanders {
 public:
  // Starts `count` greedy streams. `client` is borrowed.
  Bystanders(Client* client, int count);
  ~Bystanders();  // Cancels the streams that run.

  // Waits until each stream has `count` tokens or has ended.
  void WaitForTokens(int count);
  bool AreAllRunning() const;
  // The number of tokens that have come in this time, over all streams.
  int CountTokens(absl::Time begin, absl::Time end) const;

 private:
  void Run(size_t number);

  const std::vector<std::unique_ptr<GenerateStream>> streams_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<absl::Time>> arrivals_ QUIRE_GUARDED_BY(mutex_);  // [stream, token]
  std::vector<bool> has_ended_ QUIRE_GUARDED_BY(mutex_);                    // By stream.
  std::vector<std::thread> threads_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_BYSTANDERS_H_
