// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_TIMED_COLLECTIVE_H_
#define QUIRE_WORKER_TIMED_COLLECTIVE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/collective.h"

namespace quire {

// Exchanges of a rank with the others, and how long it has been in them.
struct ExchangeTimes {
  int64_t count = 0;
  std::chrono::nanoseconds time{0};
};

// Measures the exchanges of another collective. A measurement takes the time of two looks at the clock, about 0.1 us.
class TimedCollective : public Collective {
 public:
  // Passes calls on to `group`. REQUIRES: it lives until the next call, or until the last call of this object.
  void SetGroup(Collective* group) { group_ = group; }
  // Returns what was measured since the last call. Of the thread that computes.
  ExchangeTimes Take() { return std::exchange(times_, {}); }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  bool AllGather(const void* from, size_t bytes, void* to) override {
    return Measure([&] { return group_->AllGather(from, bytes, to); });
  }
  bool AllToAll(const void* from, size_t bytes, void* to) override {
    return Measure([&] { return group_->AllToAll(from, bytes, to); });
  }
  void Abort(const BackendStatus& reason) override { group_->Abort(reason); }
  BackendStatus Status() const override { return group_->Status(); }

 private:
  template <typename Move>
  bool Measure(const Move& move) {
    const auto start = std::chrono::steady_clock::now();
    const bool has_moved = move();
    times_.time += std::chrono::steady_clock::now() - start;
    ++times_.count;
    return has_moved;
  }

  Collective* group_ = nullptr;
  ExchangeTimes times_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_TIMED_COLLECTIVE_H_
