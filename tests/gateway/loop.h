// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_LOOP_H_
#define QUIRE_TESTS_GATEWAY_LOOP_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "gtest/gtest.h"

namespace quire {

// Runs what is posted on the thread of the test.
class Loop {
 public:
  void PostAfter(std::chrono::milliseconds delay, std::function<void()> function) {
    const std::lock_guard<std::mutex> lock(mutex_);
    functions_.emplace(std::chrono::steady_clock::now() + delay, std::move(function));
    posted_.notify_one();
  }
  // Runs until `is_done`, and fails the test after a long time.
  void RunUntil(const std::function<bool()>& is_done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!is_done()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end);
      std::unique_lock<std::mutex> lock(mutex_);
      const auto now = std::chrono::steady_clock::now();
      if (functions_.empty() || functions_.begin()->first > now) {
        posted_.wait_until(lock, functions_.empty() ? now + std::chrono::milliseconds(10) : functions_.begin()->first);
        continue;
      }
      const std::function<void()> function = std::move(functions_.begin()->second);
      functions_.erase(functions_.begin());
      lock.unlock();
      function();
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>>
      functions_;  // Equal times in their order.
};

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_LOOP_H_
