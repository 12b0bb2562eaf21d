// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_EVENT_LOG_H_
#define QUIRE_TESTS_CHAOS_EVENT_LOG_H_

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace quire {

// What has happened in a run, with the times at which it happened. Thread-safe.
class EventLog {
 public:
  void Add(const std::string& text);
  // Prints all events, with seconds since the log was made and the time of day, in UTC.
  void Print() const;

 private:
  struct Event {
    absl::Time time;
    std::string text;
  };

  const absl::Time start_ = absl::Now();
  mutable Mutex mutex_;
  std::vector<Event> events_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_EVENT_LOG_H_
