// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_READ_BUDGET_H_
#define QUIRE_SERVING_READ_BUDGET_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace quire {

// How much of a connection may be read now. A connection may make a little work for the server at any time. One that
// makes more waits for its turn each time, see TurnQueue, and then little is read, so that the server soon looks at the
// others. Not thread-safe.
class ReadBudget {
 public:
  static constexpr int64_t kFreeUs = 2'000;     // Work that a new connection, or one that was silent, may make.
  static constexpr int64_t kFreeUsPerMs = 20;   // Work that is allowed as time passes.
  static constexpr int64_t kTurnUs = 500;       // Work that it may make in a turn.
  static constexpr int64_t kMinReadBytes = 64;  // The least that is read at once.
  static constexpr int64_t kMaxReadBytes = 32 << 10;

  // Returns how many bytes may be read, or 0 when the connection must wait for its turn.
  size_t BytesToRead(int64_t now_us);

  // Bytes were read, or they made work.
  void AddBytes(size_t num_bytes) { bytes_ += static_cast<int64_t>(num_bytes); }
  void AddWork(int64_t work_us);

  // The price of the next turn.
  int64_t PriceOfTurn() const { return kTurnUs - free_us_; }
  void TakeTurn() { free_us_ = kTurnUs; }

  // The work that was made and not paid for.
  int64_t DebtUs() const { return std::max<int64_t>(0, -free_us_); }

 private:
  int64_t free_us_ = kFreeUs;  // Work that may be made. Negative: too much was made.
  int64_t grown_at_us_ = 0;    // When free_us_ grew by time.
  int64_t bytes_ = 0;          // Read since the last call of BytesToRead that returned some.
  int64_t work_us_ = 0;        // The work of these bytes.
  double bytes_per_us_ = 2;    // Expected of what comes next.
};

}  // namespace quire

#endif  // QUIRE_SERVING_READ_BUDGET_H_
