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
