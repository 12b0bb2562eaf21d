#ifndef QUIRE_CLIENT_LOAD_FREE_PLACES_H_
#define QUIRE_CLIENT_LOAD_FREE_PLACES_H_

#include <chrono>
#include <cstddef>
#include <deque>

namespace quire {

// The places for requests in flight that are free, each with the time since which it is: a closed loop has one for each
// caller. Not thread-safe.
class FreePlaces {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  FreePlaces() = default;
  FreePlaces(int count, TimePoint since) : since_(static_cast<size_t>(count), since) {}

  bool any() const { return !since_.empty(); }

  // Takes the one that has been free for the longest, and returns since when. REQUIRES: any().
  TimePoint Take() {
    const TimePoint since = since_.front();
    since_.pop_front();
    return since;
  }

  // REQUIRES: `now` is no earlier than at the call before.
  void Return(TimePoint now) { since_.push_back(now); }

 private:
  std::deque<TimePoint> since_;  // In order.
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_FREE_PLACES_H_
