#ifndef QUIRE_KERNELS_SIMT_ACCESS_HISTORY_H_
#define QUIRE_KERNELS_SIMT_ACCESS_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/problem.h"
#include "kernels/simt/types.h"

namespace quire::simt {

// Counts the barriers of a block. Barriers are the only thing that orders the accesses of the block's threads. An
// access is stamped with the count at its time. A barrier always includes a whole warp or the whole block. Therefore
// one number per warp and one for the block tell exactly which accesses came before the last barrier that two threads
// share.
class BarrierClock {
 public:
  explicit BarrierClock(int num_warps) : warp_start_(num_warps, 1) {}

  uint32_t now() const { return now_; }
  uint32_t block_start() const { return block_start_; }
  uint32_t warp_start(int warp) const { return warp_start_[warp]; }

  void OnBlockBarrier() { block_start_ = ++now_; }
  void OnWarpBarrier(int warp) { warp_start_[warp] = ++now_; }
  // Starts a new block.
  void Reset() {
    now_ = block_start_ = 1;
    std::fill(warp_start_.begin(), warp_start_.end(), 1);
  }

 private:
  uint32_t now_ = 1;
  uint32_t block_start_ = 1;          // The count after the last barrier of the block.
  std::vector<uint32_t> warp_start_;  // [num_warps], the count after each warp's own last barrier.
};

// The thread that makes an access. LoadMatrix4 reads for the whole warp, so its reads belong to no single thread.
struct Accessor {
  int thread;
  bool whole_warp;
  Place place;

  int warp() const { return thread / kWarpSize; }
};

// Summary of the accesses of one kind by one block's threads to a granule of memory, since the last barrier of the
// block. It keeps exactly what is needed to decide whether a later access collides with them. If several warps took
// part, every later access collides. If one warp did, the accesses of other warps collide. An access of the same warp
// collides if another lane has accessed the granule since the warp's last barrier.
struct AccessSummary {
  static constexpr uint16_t kSeveralThreads = 0xffff;
  static constexpr uint8_t kSeveralWarps = 0xff;

  Place place;         // The place of the last access.
  uint32_t stamp = 0;  // The stamp of the last access; 0 means never.
  uint16_t thread = 0;
  uint8_t warp = 0;

  bool Collides(const Accessor& by, const BarrierClock& clock) const {
    if (stamp < clock.block_start()) return false;
    if (warp != by.warp()) return true;
    return stamp >= clock.warp_start(by.warp()) && (thread != by.thread || by.whole_warp);
  }

  // Forgets the earlier accesses. It is used for an access that has been checked against them: either it is ordered
  // after them, or the race has been reported.
  void Set(const Accessor& by, const BarrierClock& clock) {
    thread = by.whole_warp ? kSeveralThreads : static_cast<uint16_t>(by.thread);
    warp = static_cast<uint8_t>(by.warp());
    stamp = clock.now();
    place = by.place;
  }

  void Add(const Accessor& by, const BarrierClock& clock) {
    const uint8_t earlier_warp = warp;
    const bool joins = Collides(by, clock);
    Set(by, clock);
    if (!joins) return;
    thread = kSeveralThreads;
    if (earlier_warp != warp) warp = kSeveralWarps;
  }
};

// The accesses of one block's threads to a granule of memory.
struct AccessHistory {
  AccessSummary writes;
  AccessSummary reads;
  bool is_atomic = false;  // Whether the writes were atomics, which do not collide with each other.
  bool is_initialized = false;
  bool is_in_flight = false;  // Whether the last write was an asynchronous copy that has not landed yet.
};

// A History for every byte of a piece of memory. It is kept per 4-byte word until a part of the word is accessed alone.
template <typename History>
class HistoryMap {
 public:
  static constexpr size_t kWordBytes = 4;

  explicit HistoryMap(size_t bytes) : words_((bytes + kWordBytes - 1) / kWordBytes), split_(words_.size(), kNotSplit) {}

  void Reset() {
    std::fill(words_.begin(), words_.end(), History());
    std::fill(split_.begin(), split_.end(), kNotSplit);
    bytes_.clear();
  }

  // Calls visit(History&) for every granule of [begin, begin + bytes).
  template <typename Visit>
  void ForEach(size_t begin, size_t bytes, Visit visit) {
    const size_t end = begin + bytes;
    for (size_t word = begin / kWordBytes; word * kWordBytes < end; ++word) {
      const size_t first = std::max(begin, word * kWordBytes) - word * kWordBytes;
      const size_t last = std::min(end, (word + 1) * kWordBytes) - word * kWordBytes;
      const bool is_whole = first == 0 && last == kWordBytes;
      if (is_whole && split_[word] == kNotSplit) {
        visit(words_[word]);
        continue;
      }
      std::array<History, kWordBytes>& histories = Split(word);
      for (size_t byte = first; byte < last; ++byte) visit(histories[byte]);
    }
  }

 private:
  static constexpr int32_t kNotSplit = -1;

  std::array<History, kWordBytes>& Split(size_t word) {
    if (split_[word] == kNotSplit) {
      split_[word] = static_cast<int32_t>(bytes_.size());
      bytes_.emplace_back().fill(words_[word]);
    }
    return bytes_[split_[word]];
  }

  std::vector<History> words_;
  std::vector<int32_t> split_;  // Index in bytes_ of the histories of the word's bytes, or kNotSplit.
  std::vector<std::array<History, kWordBytes>> bytes_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_ACCESS_HISTORY_H_
