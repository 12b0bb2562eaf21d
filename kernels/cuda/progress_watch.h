// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PROGRESS_WATCH_H_
#define QUIRE_KERNELS_CUDA_PROGRESS_WATCH_H_

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace quire::cuda {

// Finds out that a device hangs: work before a mark is not done, although the mark was made longer ago than a limit and
// no other mark has been seen done for that long. Whoever asks about a mark says here what the answer was. So it does
// not matter whether the host waits for the device or only looks from time to time. Used by one thread.
class ProgressWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressWatch(std::chrono::milliseconds longest_wait) : longest_wait_(longest_wait) {}

  // Says that a mark is made. Marks count up.
  void Add(uint64_t mark, Clock::time_point now = Clock::now()) { times_[mark % kNumTimes] = now; }
  // Says that a mark was seen done.
  void SetDone(Clock::time_point now = Clock::now()) { last_progress_ = now; }
  // Says that a mark was seen not done. Returns whether the device hangs. Of marks that are kNumTimes apart, the time
  // of the later one counts.
  bool Hangs(uint64_t mark, Clock::time_point now = Clock::now()) const {
    return now - std::max(times_[mark % kNumTimes], last_progress_) > longest_wait_;
  }

 private:
  static constexpr uint64_t kNumTimes = 64;

  const Clock::duration longest_wait_;
  Clock::time_point times_[kNumTimes] = {};
  Clock::time_point last_progress_ = {};
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PROGRESS_WATCH_H_
