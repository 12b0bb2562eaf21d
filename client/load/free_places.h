// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_FREE_PLACES_H_
#define QUIRE_CLIENT_LOAD_FREE_PLACES_H_

#include <chrono>
#include <cstddef>
#include <deque>

namespace quire {

// The free places for requests in flight, each with the time at which it became free. A closed loop has a place for
// each caller. Not thread-safe.
class FreePlaces {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  FreePlaces() = default;
  FreePlaces(int count, TimePoint since) : since_(static_cast<size_t>(count), since) {}

  bool any() const { return !since_.empty(); }

  // Takes the place that has been free for the longest time. Returns when it became free. REQUIRES: any().
  TimePoint Take() {
    const TimePoint since = since_.front();
    since_.pop_front();
    return since;
  }

  // REQUIRES: `now` is not earlier than at the last call.
  void Return(TimePoint now) { since_.push_back(now); }

 private:
  std::deque<TimePoint> since_;  // In ascending order.
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_FREE_PLACES_H_
