// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_SPLIT_SUM_H_
#define QUIRE_KERNELS_CUDA_SPLIT_SUM_H_

#include <cstdint>
#include <cstring>

#include "kernels/cuda/vector8.h"

namespace quire::cuda {

// Stores one element of a product: y[i] = sum (+ y[i]). y has float32 or elements.
template <typename Element>
QUIRE_DEVICE void StoreProduct(void* y, bool y_is_float, bool adds_to_y, int64_t i, float sum) {
  if (y_is_float) {
    float* const to = static_cast<float*>(y) + i;
    simt::StoreGlobal(to, sum + (adds_to_y ? simt::LoadGlobal(to) : 0));
  } else {
    uint16_t* const to = static_cast<uint16_t*>(y) + i;
    const float old = adds_to_y ? Element::Low(simt::LoadGlobal(to)) : 0;
    simt::StoreGlobal(to, uint16_t(Element::Pack(sum + old, 0)));
  }
}

// Stores the elements [i, i + 8) of a product in the same way. They are aligned to 16 bytes.
template <typename Element>
QUIRE_DEVICE void StoreEightProducts(void* y, bool y_is_float, bool adds_to_y, int64_t i, const float (&sums)[8]) {
  if (y_is_float) {
    QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
      auto* const to = reinterpret_cast<simt::U32x4*>(static_cast<float*>(y) + i + j);
      float four[4] = {};
      if (adds_to_y) {
        const simt::U32x4 words = simt::LoadGlobal(to);
        memcpy(four, words.word, sizeof(four));
      }
      QUIRE_UNROLL for (int k = 0; k < 4; ++k) four[k] += sums[j + k];
      simt::U32x4 words;
      memcpy(words.word, four, sizeof(four));
      simt::StoreGlobal(to, words);
    }
  } else {
    uint16_t* const to = static_cast<uint16_t*>(y) + i;
    Vector8<Element> elements = {};
    if (adds_to_y) elements = Vector8<Element>::Load(to);
    QUIRE_UNROLL for (int j = 0; j < 8; ++j) elements.x[j] += sums[j];
    elements.Store(to);
  }
}

// Returns true in the thread block that is the last one of num_splits to call this with the ticket. It then sees what
// all of them have stored before. The ticket is 0 again. All threads of a block call it; it uses 4 bytes of shared
// memory.
QUIRE_DEVICE bool IsLastSplit(uint32_t* ticket, int num_splits) {
  uint32_t* const taken = reinterpret_cast<uint32_t*>(simt::SharedMemory());
  simt::MemoryFence();
  simt::SyncBlock();
  if (simt::ThreadIndex() == 0) simt::StoreShared(taken, simt::TakeTicket(ticket, uint32_t(num_splits)));
  simt::SyncBlock();
  if (simt::LoadShared(taken) != uint32_t(num_splits - 1)) return false;
  simt::MemoryFence();
  return true;
}

// Calls f(token, row, sum) for what a lane has of a product: the sums of rows g and g + 8 of each tile of 16 rows and
// of the tokens 8 i + 2 t and 8 i + 2 t + 1, where g = lane / 4 and t = lane % 4. The tiles of my warp begin with
// `tile`. Tiles behind `last_tile` are missing, and so are tokens from num_tokens on and rows from num_rows on.
template <typename Sum, int kRowTiles, int kTokenTiles, typename F>
QUIRE_DEVICE void ForEachSumOfLane(const Sum (&sums)[kRowTiles][kTokenTiles][4], int tile, int last_tile,
                                   int num_tokens, int num_rows, F f) {
  constexpr int kTileRows = 16;
  const int lane = simt::LaneIndex();
  QUIRE_UNROLL for (int r = 0; r < kRowTiles; ++r) {
    if (tile + r > last_tile) return;
    QUIRE_UNROLL for (int i = 0; i < kTokenTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const int token = 8 * i + 2 * (lane % 4) + j % 2;
        const int row = kTileRows * (tile + r) + lane / 4 + 8 * (j / 2);
        if (token < num_tokens && row < num_rows) f(token, row, sums[r][i][j]);
      }
    }
  }
}

// The sums that the splits of a product have stored.
template <typename Sum>
struct StoredSums {
  Sum* sums;  // [num_splits][split_stride], in each split [num_tokens, num_rows], aligned to 16 bytes.
  int64_t split_stride;
  int32_t num_rows;  // A multiple of four, if splits are joined.
  int32_t num_splits;

  QUIRE_DEVICE Sum* OfSplit(int split) const { return sums + split * split_stride; }

  // Adds the splits of kRows rows, in ascending order, and calls store(token, row, sum) for each token and each of
  // these rows that is below end_row. All kThreads threads of a block call it. A copy of end_row would take a register.
  template <int kRows, int kThreads, typename Add, typename StoreSum>
  QUIRE_DEVICE void Join(int first_row, const int32_t& end_row, int num_tokens, Add add, StoreSum store) const {
    constexpr int kThreadsOfToken = kRows / kRowsOfThread;
    for (int i = simt::ThreadIndex(); i < num_tokens * kThreadsOfToken; i += kThreads) {
      const int row = first_row + i % kThreadsOfToken * kRowsOfThread;
      // All rows of the last tile have sums, also those that the matrix does not have.
      if (row < end_row) JoinRows(i / kThreadsOfToken, row, end_row, add, store);
    }
  }

 private:
  static constexpr int kRowsOfThread = 4;

  template <typename Add, typename StoreSum>
  QUIRE_DEVICE void JoinRows(int token, int row, const int32_t& end_row, Add add, StoreSum store) const {
    constexpr int kLoadedAtOnce = 8;
    const Sum* const from = sums + int64_t{token} * num_rows + row;
    Sum joined[kRowsOfThread] = {};
    QUIRE_NO_UNROLL for (int split = 0; split < num_splits; split += kLoadedAtOnce) {
      Four<Sum> loaded[kLoadedAtOnce] = {};
      QUIRE_UNROLL for (int i = 0; i < kLoadedAtOnce; ++i) {
        if (split + i < num_splits) loaded[i] = Four<Sum>::Load(from + (split + i) * split_stride);
      }
      QUIRE_UNROLL for (int i = 0; i < kLoadedAtOnce; ++i) {
        QUIRE_UNROLL for (int j = 0; j < kRowsOfThread; ++j) joined[j] = add(joined[j], loaded[i].x[j]);
      }
    }
    QUIRE_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
      if (row + j < end_row) store(token, row + j, joined[j]);
    }
  }
};

// y[i] = sum over the splits, ascending, of partial[split][i] (+ y[i]).
struct SplitSumArgs {
  const float* partial;  // [num_splits][split_stride]
  void* y;               // [count] float32 or elements, aligned to 16 bytes.
  int64_t split_stride;  // A multiple of 8.
  int64_t count;
  int32_t num_splits;
  bool y_is_float;
  bool adds_to_y;
};

// A thread adds eight consecutive elements at a time.
template <typename Element>
class SplitSumKernel {
 public:
  using Args = SplitSumArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const SplitSumArgs& args) {
    simt::WaitForPriorGrid();
    for (int64_t i = 8 * (int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex()); i < args.count;
         i += int64_t{8} * simt::GridSize() * kThreads) {
      if (i + 8 <= args.count) {
        AddEight(args, i);
      } else {
        for (int64_t j = i; j < args.count; ++j) AddOne(args, j);
      }
    }
    simt::TriggerNextGrid();
  }

 private:
  static QUIRE_DEVICE void AddEight(const SplitSumArgs& args, int64_t i) {
    float sum[8] = {};
    QUIRE_NO_UNROLL for (int split = 0; split < args.num_splits; ++split) {
      const float* const partial = args.partial + split * args.split_stride + i;
      QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
        const simt::U32x4 words = simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(partial + j));
        float four[4];
        memcpy(four, words.word, sizeof(four));
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) sum[j + k] += four[k];
      }
    }
    StoreEightProducts<Element>(args.y, args.y_is_float, args.adds_to_y, i, sum);
  }

  static QUIRE_DEVICE void AddOne(const SplitSumArgs& args, int64_t i) {
    float sum = 0;
    for (int split = 0; split < args.num_splits; ++split) {
      sum += simt::LoadGlobal(args.partial + split * args.split_stride + i);
    }
    StoreProduct<Element>(args.y, args.y_is_float, args.adds_to_y, i, sum);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_SPLIT_SUM_H_
