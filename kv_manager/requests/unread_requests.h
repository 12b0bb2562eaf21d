#ifndef QUIRE_KV_MANAGER_REQUESTS_UNREAD_REQUESTS_H_
#define QUIRE_KV_MANAGER_REQUESTS_UNREAD_REQUESTS_H_

#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/time/time.h"

namespace quire {

// Counts the requests that the engine took and whose last response is not on its way yet: after their last token there
// is still text to be made and to be read by the client. Thread-safe.
class UnreadRequests {
 public:
  // The request counts until all copies are gone. `this` must outlive them.
  using Hold = std::shared_ptr<void>;
  Hold Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    return Hold(this, [](UnreadRequests* requests) { requests->Remove(); });
  }

  // False when there still were some at the timeout.
  bool WaitForNone(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, absl::ToChronoMicroseconds(timeout), [this] { return count_ == 0; });
  }

 private:
  void Remove() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_UNREAD_REQUESTS_H_
