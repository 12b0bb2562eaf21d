// SPDX-License-Identifier: Apache-2.0

// Instantiates every function of the device layer on the device, for each architecture. Code that is no longer valid
// device code fails to compile here.

#include <cstdint>

#include "kernels/simt/simt.h"
#include "tests/kernels/simt/matrix_product.h"

namespace quire::simt {

template <typename T>
QUIRE_DEVICE void UseMemory(T* global, T* shared, const T* constant) {
  StoreGlobal(global + ThreadIndex(), LoadReadOnly(constant + ThreadIndex()));
  StoreShared(shared + ThreadIndex(), LoadGlobal(global + ThreadIndex() + 1));
  SyncBlock();
  StoreGlobal(global + BlockSize(), LoadShared(shared + ThreadIndex() + 1));
}

template <typename T>
QUIRE_DEVICE T UseShuffles(T value) {
  return ShuffleXor(Shuffle(value, 3), 1) + ShuffleUp(value, 2) + ShuffleDown(value, 2);
}

template <typename T>
__global__ void UseMemoryKernel(T* global, const T* constant) {
  UseMemory(global, reinterpret_cast<T*>(SharedMemory()), constant);
}
template __global__ void UseMemoryKernel(uint8_t*, const uint8_t*);
template __global__ void UseMemoryKernel(uint16_t*, const uint16_t*);
template __global__ void UseMemoryKernel(uint32_t*, const uint32_t*);
template __global__ void UseMemoryKernel(float*, const float*);
template __global__ void UseMemoryKernel(uint64_t*, const uint64_t*);
template __global__ void UseMemoryKernel(U32x2*, const U32x2*);
template __global__ void UseMemoryKernel(U32x4*, const U32x4*);

__global__ void UseWarpFunctions(uint32_t* words, uint64_t* longs, float* floats) {
  const bool odd = LaneIndex() % 2 != 0;
  words[0] = UseShuffles(words[LaneIndex()]) + Ballot(odd) + Any(odd) + All(odd);
  longs[0] = UseShuffles(longs[WarpIndex()]);
  floats[0] = UseShuffles(floats[BlockIndex()] + static_cast<float>(GridSize()));
  SyncWarp();
  MemoryFence();
  MemoryFenceSystem();
  AtomicAdd(words, 1u);
  AtomicAdd(longs, uint64_t{1});
  AtomicAdd(floats, 1.0f);
  AtomicMax(words, TakeTicket(words + 1, 8));
}

__global__ void UseMatrices(const U32x4* from, float* to) {
  WaitForPriorGrid();
  char* const mine = SharedMemory() + ThreadIndex() * 16;
  CopyAsync16(mine, from + ThreadIndex(), from != nullptr);
  CommitCopies();
  WaitCopies<1>();
  WaitCopies<0>();
  SyncBlock();
  uint32_t a[4];
  uint32_t b[4];
  LoadMatrix4(a, mine);
  LoadMatrix4Transposed(b, mine);
  float c[4] = {0, 0, 0, 0};
  MmaBf16(c, a, b[0], b[1]);
  MmaF16(c, a, b[2], b[3]);
  int32_t whole[4] = {0, 0, 0, 0};
  MmaS8(whole, a, b[0], b[3]);
  TriggerNextGrid();
  const uint32_t bf16 = PackBf16(Exp2(c[0]), Log2(c[1]));
  const uint32_t f16 = PackF16(Reciprocal(c[2]), ReciprocalSqrt(c[3]));
  const float product = RoundedProduct(float(whole[0]), float(whole[1]));
  StoreGlobal(to, LowBf16(bf16) + HighBf16(bf16) + LowF16(f16) + HighF16(f16) + product);
}

__global__ void __launch_bounds__(kProductThreads) MatrixProductKernel(const __grid_constant__ MatrixProductArgs args) {
  MatrixProduct(args);
}

}  // namespace quire::simt
