// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/event_log.h"

#include <cstdio>

namespace quire {

void EventLog::Add(const std::string& text) {
  const MutexLock lock(&mutex_);
  events_.push_back({absl::Now(), text});
}

void EventLog::Print() const {
  const MutexLock lock(&mutex_);
  for (const Event& event : events_) {
    std::printf("%9.3f s, %s: %s\n", absl::ToDoubleSeconds(event.time - start_),
                absl::FormatTime("%H:%M:%E3S", event.time, absl::UTCTimeZone()).c_str(), event.text.c_str());
  }
}

}  // namespace quire
