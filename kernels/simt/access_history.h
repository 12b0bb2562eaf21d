// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_ACCESS_HISTORY_H_
#define QUIRE_KERNELS_SIMT_ACCESS_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/simt/problem.h"
#include "kernels/simt/types.h"

namespace quire::simt {

// A warp's knowledge has a count of a BarrierClock for each warp and for the asynchronous copies: everything that they
// had done before that count is ordered before the warp's next access. The counts of the products of warps follow.
using Knowledge = std::vector<uint32_t>;

// Counts the barriers of a block. Barriers are the only thing that orders the accesses of the block's threads. An
// access is stamped with the count at its time. For each pair of warps the clock has the count up to which all accesses
// of the second are ordered before the next access of the first. Barriers of a warp, a warp group and the block raise
// these counts. A barrier in shared memory hands the counts of the threads that arrive to those that wait.
//
// Asynchronous copies count as accesses of one more warp, and products of warp groups have counts of their own.
class BarrierClock {
 public:
  explicit BarrierClock(int num_warps) : num_warps_(num_warps), known_(num_warps, Knowledge(2 * num_warps + 1, 1)) {}

  uint32_t now() const { return now_; }
  uint32_t block_start() const { return block_start_; }
  int num_warps() const { return num_warps_; }
  // The index of the warp to which asynchronous copies belong.
  int copies() const { return num_warps_; }

  // All accesses of warp `other` with a smaller stamp are ordered before the next access of `warp`.
  uint32_t seen(int warp, int other) const { return known_[warp][other]; }
  // All products for which warp `other` waited before this count are done before the next access of `warp`.
  uint32_t products_seen(int warp, int other) const { return warp == other ? now_ + 1 : known_[warp][Products(other)]; }

  void OnBlockBarrier() {
    block_start_ = now_ + 1;
    OnBarrier(0, num_warps_);
  }
  void OnWarpBarrier(int warp) { known_[warp][warp] = known_[warp][Products(warp)] = ++now_; }
  // A barrier of `count` warps.
  void OnBarrier(int first_warp, int count) {
    Knowledge joined(2 * num_warps_ + 1, 1);
    for (int warp = first_warp; warp < first_warp + count; ++warp) Join(known_[warp], &joined);
    ++now_;
    for (int warp = first_warp; warp < first_warp + count; ++warp) joined[warp] = joined[Products(warp)] = now_;
    for (int warp = first_warp; warp < first_warp + count; ++warp) known_[warp] = joined;
  }
  // A thread of the warp arrives at a barrier in shared memory. This publishes the warp's accesses before its last
  // barrier, and all products for which it has waited.
  void Publish(int warp, Knowledge* to) {
    known_[warp][Products(warp)] = ++now_;
    Join(known_[warp], to);
  }
  void Acquire(int warp, const Knowledge& from) { Join(from, &known_[warp]); }
  // An asynchronous copy has landed. Its accesses have the current stamp.
  void OnLanding(Knowledge* to) {
    to->resize(2 * num_warps_ + 1, 1);
    (*to)[copies()] = ++now_;
  }
  // Separates the accesses before a fence from those after it. It orders nothing.
  void OnFence() { ++now_; }
  // Starts a new block.
  void Reset() {
    now_ = block_start_ = 1;
    for (Knowledge& known : known_) std::fill(known.begin(), known.end(), 1);
  }

 private:
  int Products(int warp) const { return num_warps_ + 1 + warp; }
  static void Join(const Knowledge& from, Knowledge* to) {
    to->resize(std::max(to->size(), from.size()), 1);
    for (size_t i = 0; i < from.size(); ++i) (*to)[i] = std::max((*to)[i], from[i]);
  }

  int num_warps_;
  uint32_t now_ = 1;
  uint32_t block_start_ = 1;      // The count after the last barrier of the block.
  std::vector<Knowledge> known_;  // [num_warps]: of all warps, of the copies, and of the products of all warps.
};

// The thread that makes an access. LoadMatrix4 reads for the whole warp, so its reads belong to no single thread.
struct Accessor {
  int thread;
  bool whole_warp;
  Place place;

  int warp() const { return thread / kWarpSize; }
};

// Summary of the accesses of one kind by one block's threads to a granule of memory, since the last barrier of the
// block. It keeps exactly what is needed to decide whether a later access collides with them. The accesses of other
// warps collide until a barrier has ordered them before the warp's next access. An access of the same warp collides if
// another lane has accessed the granule since the warp's last barrier.
struct AccessSummary {
  static constexpr uint16_t kSeveralThreads = 0xffff;

  // The last access of a warp. Asynchronous copies count as one more warp.
  struct OfWarp {
    int warp;
    uint32_t stamp;
  };

  Place place;         // The place of the last access.
  uint32_t stamp = 0;  // The stamp of the last access; 0 means never.
  uint16_t thread = 0;
  uint8_t warp = 0;
  std::vector<OfWarp> others;  // Earlier accesses that nothing has ordered before the last one.

  bool Collides(const Accessor& by, const BarrierClock& clock) const {
    if (warp != by.warp() && stamp >= clock.seen(by.warp(), warp)) return true;
    for (const OfWarp& other : others) {
      if (other.warp != by.warp() && other.stamp >= clock.seen(by.warp(), other.warp)) return true;
    }
    if (warp != by.warp() || !others.empty()) return false;
    return stamp >= clock.seen(warp, warp) && (thread != by.thread || by.whole_warp);
  }

  // Forgets the earlier accesses. It is used for an access that has been checked against them: either it is ordered
  // after them, or the race has been reported.
  void Set(const Accessor& by, const BarrierClock& clock) {
    others.clear();
    thread = by.whole_warp ? kSeveralThreads : static_cast<uint16_t>(by.thread);
    warp = static_cast<uint8_t>(by.warp());
    stamp = clock.now();
    place = by.place;
  }

  void Add(const Accessor& by, const BarrierClock& clock) {
    if (!Collides(by, clock)) return Set(by, clock);
    std::vector<OfWarp> all = std::move(others);
    if (warp != by.warp()) {
      std::erase_if(all, [&](const OfWarp& other) { return other.warp == by.warp(); });
      all.push_back({warp, stamp});
    }
    Set(by, clock);
    others = std::move(all);
    thread = kSeveralThreads;
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
