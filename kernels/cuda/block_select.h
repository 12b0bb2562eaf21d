// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_BLOCK_SELECT_H_
#define QUIRE_KERNELS_CUDA_BLOCK_SELECT_H_

#include <cstdint>

#include "kernels/cuda/score.h"

// Operations of a thread block on the scores of a row: maximum, sum, sort, and selection of the best tokens by number
// or by mass. All arithmetic is on integers, so no result depends on the order of threads.

namespace quire::cuda {

struct SelectMemory {
  static constexpr int kListCapacity = 2048;
  static constexpr int kBins = 1024;

  uint64_t list[kListCapacity];  // Rank keys.
  uint64_t warp_values[simt::kWarpSize];
  uint64_t before;
  uint32_t low[kBins], high[kBins];  // Halves of the sums of a histogram.
  uint32_t list_size;                // Counts also the keys that found no room.
  int32_t index;
};

// The weight of a token in a selection, and the end of the selection. It ends with the first token at which the weight
// of this token and all better ones reaches the limit.
struct CountWeight {
  static constexpr bool kIsMass = false;
  uint32_t count;  // At least 1, at most the number of tokens.

  QUIRE_DEVICE uint64_t Of(float) const { return 1; }
  QUIRE_DEVICE uint64_t Limit(uint64_t) const { return count; }
};

// Selects by mass. REQUIRES: the best score is 0.
struct MassWeight {
  static constexpr bool kIsMass = true;
  float share;  // In (0, 1).

  QUIRE_DEVICE uint64_t Of(float score) const { return Mass(score); }
  QUIRE_DEVICE uint64_t Limit(uint64_t total) const {
    const double exact = static_cast<double>(share) * static_cast<double>(total);
    uint64_t limit = static_cast<uint64_t>(exact);
    limit += static_cast<double>(limit) < exact ? 1 : 0;
    return limit < 1 ? 1 : limit < total ? limit : total;
  }
};

struct Selection {
  uint64_t cut;       // The smallest rank key that is selected.
  int32_t list_size;  // The first `list_size` entries of the list are the selected tokens, in order. 0: they are not in
                      // the list.
};

// All threads of the block call these functions, and all threads get the results.
template <int kThreads>
class BlockSelect {
 public:
  static constexpr int kListCapacity = SelectMemory::kListCapacity;

  // Returns an entry of the list.
  static QUIRE_DEVICE uint64_t Listed(int i) { return simt::LoadShared(&Memory()->list[i]); }

  static QUIRE_DEVICE uint64_t Max(uint64_t value) {
    return Reduce(value, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }
  static QUIRE_DEVICE uint64_t Sum(uint64_t value) {
    return Reduce(value, [](uint64_t a, uint64_t b) { return a + b; });
  }

  // Selects the best tokens up to the one at which the limit is reached, among the tokens with a rank key of at least
  // `floor`. `thread_best` is the rank key of one of this thread's tokens, or 0 for none. The quick_rank-th best of
  // these keys is a bound that at least quick_rank tokens reach, and seldom many more. Mass REQUIRES quick_rank <=
  // kThreads / 2.
  template <typename Weight>
  static QUIRE_DEVICE Selection Select(const ScoreRow& row, uint64_t thread_best, int quick_rank, uint64_t floor,
                                       const Weight& weight) {
    uint64_t limit = weight.Limit(0);
    if (quick_rank <= kThreads / 2) {
      const uint64_t bound = BestOfThreads(thread_best, quick_rank);
      uint64_t total = 0;
      const int size = Collect(row, bound > floor ? bound : floor, ~uint64_t{0}, floor, weight, &total);
      limit = weight.Limit(total);
      if (size <= kListCapacity) {
        Sort(size);
        const Crossing end = CrossList(size, limit, weight);
        if (end.index < size) return {Listed(end.index), end.index + 1};
      }
    }
    return {SelectByHistogram(row, floor, limit, weight), 0};
  }

  // Like Select for the `size` tokens in the list, which are in order.
  template <typename Weight>
  static QUIRE_DEVICE Selection SelectListed(int size, const Weight& weight) {
    uint64_t total = 0;
    for (int i = simt::ThreadIndex(); i < size; i += kThreads) total += weight.Of(ScoreOf(Listed(i)));
    const Crossing end = CrossList(size, weight.Limit(Sum(total)), weight);
    return {Listed(end.index), end.index + 1};
  }

  // Puts the tokens with rank keys from `low` to `high` into the list, best first. REQUIRES: at most kListCapacity.
  static QUIRE_DEVICE void List(const ScoreRow& row, uint64_t low, uint64_t high) {
    uint64_t unused = 0;
    Sort(Collect(row, low, high, low, CountWeight{1}, &unused));
  }

 private:
  static constexpr int kWarps = kThreads / simt::kWarpSize, kBins = SelectMemory::kBins;
  static_assert(kThreads <= kListCapacity && kThreads % simt::kWarpSize == 0 && kWarps <= simt::kWarpSize, "");

  // The position at which the sum of weights reaches a limit.
  struct Crossing {
    int index;        // The number of weights if they do not reach the limit.
    uint64_t before;  // The sum of the weights before the index.
  };

  static QUIRE_DEVICE SelectMemory* Memory() { return reinterpret_cast<SelectMemory*>(simt::SharedMemory()); }

  template <typename Join>
  static QUIRE_DEVICE uint64_t ReduceWarp(uint64_t value, const Join& join) {
    QUIRE_UNROLL for (int mask = simt::kWarpSize / 2; mask > 0; mask /= 2) {
      value = join(value, simt::ShuffleXor(value, mask));
    }
    return value;
  }
  // REQUIRES: join(x, 0) == x.
  template <typename Join>
  static QUIRE_DEVICE uint64_t Reduce(uint64_t value, const Join& join) {
    uint64_t* const warps = Memory()->warp_values;
    value = ReduceWarp(value, join);
    if (simt::LaneIndex() == 0) simt::StoreShared(warps + simt::WarpIndex(), value);
    simt::SyncBlock();
    value = ReduceWarp(simt::LaneIndex() < kWarps ? simt::LoadShared(warps + simt::LaneIndex()) : 0, join);
    simt::SyncBlock();  // The next call writes the same memory.
    return value;
  }

  // Finds the first i of [0, size) at which weight_at(0) + ... + weight_at(i) >= limit, where 0 < limit.
  template <typename WeightAt>
  static QUIRE_DEVICE Crossing FindCrossing(int size, uint64_t limit, const WeightAt& weight_at) {
    SelectMemory* const memory = Memory();
    const int share = (size + kThreads - 1) / kThreads;
    const int begin = simt::ThreadIndex() * share, end = begin + share < size ? begin + share : size;
    uint64_t own = 0;
    QUIRE_NO_UNROLL for (int i = begin; i < end; ++i) own += weight_at(i);
    uint64_t through = own;  // The sum of this thread and of the threads before it in the warp.
    QUIRE_UNROLL for (int distance = 1; distance < simt::kWarpSize; distance *= 2) {
      const uint64_t other = simt::ShuffleUp(through, distance);
      if (simt::LaneIndex() >= distance) through += other;
    }
    if (simt::LaneIndex() == simt::kWarpSize - 1) simt::StoreShared(memory->warp_values + simt::WarpIndex(), through);
    if (simt::ThreadIndex() == 0) {
      simt::StoreShared(&memory->index, size);
      simt::StoreShared(&memory->before, 0);
    }
    simt::SyncBlock();
    const bool is_earlier = simt::LaneIndex() < simt::WarpIndex();
    const uint64_t warps_before = ReduceWarp(is_earlier ? simt::LoadShared(memory->warp_values + simt::LaneIndex()) : 0,
                                             [](uint64_t a, uint64_t b) { return a + b; });
    uint64_t sum = warps_before + through - own;
    if (sum < limit && sum + own >= limit) {
      int i = begin;
      QUIRE_NO_UNROLL for (; i + 1 < end; ++i) {
        const uint64_t next = sum + weight_at(i);
        if (next >= limit) break;
        sum = next;
      }
      simt::StoreShared(&memory->index, i);
      simt::StoreShared(&memory->before, sum);
    }
    simt::SyncBlock();
    const Crossing result = {simt::LoadShared(&memory->index), simt::LoadShared(&memory->before)};
    simt::SyncBlock();
    return result;
  }
  template <typename Weight>
  static QUIRE_DEVICE Crossing CrossList(int size, uint64_t limit, const Weight& weight) {
    return FindCrossing(size, limit, [&](int i) { return weight.Of(ScoreOf(Listed(i))); });
  }

  // Sorts the first `size` entries of the list, the largest first (bitonic sort, Batcher 1968). Entry i is compared
  // with entry i ^ distance. At distances below 32 a warp holds 32 entries in registers, because in shared memory the
  // entries of such pairs share banks.
  static QUIRE_DEVICE void Sort(int size) {
    uint64_t* const list = Memory()->list;
    int padded = simt::kWarpSize;
    while (padded < size) padded *= 2;
    for (int i = size + simt::ThreadIndex(); i < padded; i += kThreads) simt::StoreShared(list + i, 0);
    simt::SyncBlock();
    SortWithinWarps(padded, 2, simt::kWarpSize);
    for (int run = 2 * simt::kWarpSize; run <= padded; run *= 2) {
      for (int distance = run / 2; distance >= simt::kWarpSize; distance /= 2) {
        QUIRE_NO_UNROLL for (int pair = simt::ThreadIndex(); pair < padded / 2; pair += kThreads) {
          const int i = 2 * pair - (pair & (distance - 1));
          const uint64_t a = simt::LoadShared(list + i), b = simt::LoadShared(list + i + distance);
          if ((a < b) == ((i & run) == 0)) {
            simt::StoreShared(list + i, b);
            simt::StoreShared(list + i + distance, a);
          }
        }
        simt::SyncBlock();
      }
      SortWithinWarps(padded, run, run);
    }
  }

  // Takes the steps of the sort at distances below 32, for runs from `first_run` to `last_run`. `padded` is a multiple
  // of 32.
  static QUIRE_DEVICE void SortWithinWarps(int padded, int first_run, int last_run) {
    QUIRE_NO_UNROLL for (int i = simt::ThreadIndex(); i < padded; i += kThreads) {
      uint64_t* const entry = Memory()->list + i;
      uint64_t value = simt::LoadShared(entry);
      QUIRE_NO_UNROLL for (int run = first_run; run <= last_run; run *= 2) {
        int distance = run < simt::kWarpSize ? run / 2 : simt::kWarpSize / 2;
        QUIRE_NO_UNROLL for (; distance > 0; distance /= 2) {
          const uint64_t other = simt::ShuffleXor(value, distance);
          const bool wants_larger = ((i & distance) == 0) == ((i & run) == 0);
          value = (value < other) == wants_larger ? other : value;
        }
      }
      simt::StoreShared(entry, value);
    }
    simt::SyncBlock();
  }

  // Returns the rank-th largest of the values of all threads, but at least kLowestRankKey.
  static QUIRE_DEVICE uint64_t BestOfThreads(uint64_t value, int rank) {
    simt::SyncBlock();  // The list may still be read.
    simt::StoreShared(&Memory()->list[simt::ThreadIndex()], value);
    Sort(kThreads);
    const uint64_t bound = Listed(rank - 1);
    return bound > kLowestRankKey ? bound : kLowestRankKey;
  }

  // Writes the rank keys from `low` to `high` to the list, in any order, and returns their number. Keys beyond
  // kListCapacity are dropped. If the weight is mass, also sums the mass of the tokens with keys from `floor` on.
  template <typename Weight>
  static QUIRE_DEVICE int Collect(const ScoreRow& row, uint64_t low, uint64_t high, uint64_t floor,
                                  const Weight& weight, uint64_t* mass) {
    SelectMemory* const memory = Memory();
    simt::SyncBlock();
    if (simt::ThreadIndex() == 0) simt::StoreShared(&memory->list_size, 0);
    simt::SyncBlock();
    uint64_t sum = 0;
    ForEachScore<kThreads>(row, [&](int32_t token, float score) {
      const uint64_t key = RankKey(score, token);
      if (Weight::kIsMass && key >= floor) sum += weight.Of(score);
      if (key < low || key > high) return;
      const uint32_t place = simt::AtomicAdd(&memory->list_size, 1u);
      if (place < kListCapacity) simt::StoreShared(&memory->list[place], key);
    });
    simt::SyncBlock();
    if (Weight::kIsMass) *mass = Sum(sum);
    return static_cast<int>(simt::LoadShared(&memory->list_size));
  }

  // --- Selection of tokens that are not among the few best. This is a radix select. Each round keeps one of kBins
  // ranges of rank keys, until the rest fits into the list. Ids are part of the keys, so ties need no extra treatment.

  template <typename Weight>
  static QUIRE_DEVICE uint64_t SelectByHistogram(const ScoreRow& row, uint64_t floor, uint64_t limit,
                                                 const Weight& weight) {
    uint64_t low = floor > kLowestRankKey ? floor : kLowestRankKey, high = ~uint64_t{0};
    if (Weight::kIsMass) NarrowByScore(row, weight, &low, &high, &limit);
    uint64_t unused = 0;
    for (;;) {
      const int size = Collect(row, low, high, low, CountWeight{1}, &unused);
      if (size <= kListCapacity) {
        Sort(size);
        return Listed(CrossList(size, limit, weight).index);
      }
      NarrowByKey(row, weight, &low, &high, &limit);
    }
  }

  // The first round of a selection by mass. Bins of 1/32 in the score spread tokens better than the leading bits of a
  // float. The last bin takes all lower scores.
  template <typename Weight>
  static QUIRE_DEVICE void NarrowByScore(const ScoreRow& row, const Weight& weight, uint64_t* low, uint64_t* high,
                                         uint64_t* limit) {
    const uint64_t floor = *low;
    ClearBins();
    ForEachScore<kThreads>(row, [&](int32_t token, float score) {
      if (RankKey(score, token) < floor) return;
      const float bin = score * -32;
      AddToBin(bin < kBins - 1 ? static_cast<int>(bin) : kBins - 1, weight.Of(score));
    });
    const int bin = FindBin(limit);
    *high = uint64_t{OrderKey(static_cast<float>(bin) / -32)} << 32 | 0xffffffffu;
    const uint64_t lowest = uint64_t{OrderKey(static_cast<float>(bin + 1) / -32) + 1} << 32;
    if (bin < kBins - 1 && lowest > floor) *low = lowest;
  }

  template <typename Weight>
  static QUIRE_DEVICE void NarrowByKey(const ScoreRow& row, const Weight& weight, uint64_t* low, uint64_t* high,
                                       uint64_t* limit) {
    const uint64_t lowest = *low, highest = *high;
    int shift = 0;
    while ((highest - lowest) >> shift >= kBins) ++shift;
    ClearBins();
    ForEachScore<kThreads>(row, [&](int32_t token, float score) {
      const uint64_t key = RankKey(score, token);
      if (key >= lowest && key <= highest) AddToBin(static_cast<int>((highest - key) >> shift), weight.Of(score));
    });
    const int bin = FindBin(limit);
    *high = highest - (uint64_t(bin) << shift);
    const uint64_t last = (uint64_t{1} << shift) - 1;
    if (*high - lowest > last) *low = *high - last;
  }

  static QUIRE_DEVICE void ClearBins() {
    SelectMemory* const memory = Memory();
    simt::SyncBlock();
    for (int i = simt::ThreadIndex(); i < kBins; i += kThreads) {
      simt::StoreShared(&memory->low[i], 0);
      simt::StoreShared(&memory->high[i], 0);
    }
    simt::SyncBlock();
  }

  // A 32-bit atomic addition is one instruction, a 64-bit one is a loop. The thread whose addition makes the low half
  // overflow adds the carry to the high half.
  static QUIRE_DEVICE void AddToBin(int bin, uint64_t weight) {
    SelectMemory* const memory = Memory();
    const uint32_t low = static_cast<uint32_t>(weight);
    const uint32_t carry = simt::AtomicAdd(&memory->low[bin], low) > ~low ? 1 : 0;
    const uint32_t high = static_cast<uint32_t>(weight >> 32) + carry;
    if (high != 0) simt::AtomicAdd(&memory->high[bin], high);
  }

  // Returns the bin in which the limit is reached, and subtracts the bins before it from the limit.
  static QUIRE_DEVICE int FindBin(uint64_t* limit) {
    SelectMemory* const memory = Memory();
    simt::SyncBlock();
    const Crossing crossing = FindCrossing(kBins, *limit, [&](int i) {
      return uint64_t{simt::LoadShared(&memory->high[i])} << 32 | simt::LoadShared(&memory->low[i]);
    });
    *limit -= crossing.before;
    return crossing.index;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_BLOCK_SELECT_H_
