// SPDX-License-Identifier: Apache-2.0

// Instantiates every function of simt_sm90.h on the device. Code that is no longer valid device code fails to compile
// here.

#include <cstdint>

#include "kernels/simt/simt_sm90.h"

namespace quire::simt {

template <int kRows>
QUIRE_DEVICE void UseRows(const uint32_t (&a)[4], uint64_t b, float* to) {
  float d[kRows][4] = {};
  BeginProducts(d);
  MultiplyRowsBf16(d, a, AtRow(b, 16));
  MultiplyRowsF16(d, a, b);
  CommitProducts();
  WaitForProducts(d);
  QUIRE_UNROLL for (int i = 0; i < 4 * kRows; ++i) StoreGlobal(to + i, d[i / 4][i % 4]);
}

__global__ void __launch_bounds__(256, 1) UseWarpGroups(const U32x4* from, float* to) {
  constexpr int kPanelBytes = 16384, kMatrixBytes = 2 * kPanelBytes;
  uint64_t* const barrier = reinterpret_cast<uint64_t*>(SharedMemory() + kMatrixBytes);
  if (ThreadIndex() == 0) {
    InitBarrier(barrier, 1);
    FenceAsyncProxy();
  }
  SyncBlock();
  if (ThreadIndex() < kWarpGroupThreads) {
    LowerRegisters<40>();
    if (ThreadIndex() != 0) return;
    ArriveAndAnnounce(barrier, kMatrixBytes);
    CopyBulk(SharedMemory(), from, kMatrixBytes, barrier);
    WaitForBarrier(barrier, 0);
    ArriveAtBarrier(barrier);
    return;
  }
  RaiseRegisters<232>();
  WaitForBarrier(barrier, 1);
  SyncWarpGroup();
  float d[8][8];
  const uint64_t matrix = MatrixDescriptor(SharedMemory(), kPanelBytes);
  BeginProducts(d);
  MultiplyBf16(d, matrix, matrix, false);
  MultiplyF16(d, AtColumn(matrix, 16), AtColumn(matrix, 16), true);
  CommitProducts();
  WaitForProducts<1>(d);
  WaitForProducts(d);
  const uint32_t a[4] = {PackBf16(d[0][0], d[0][1]), PackBf16(d[0][2], d[0][3]), PackF16(d[7][0], d[7][1]), 0};
  UseRows<8>(a, matrix, to);
  UseRows<16>(a, matrix, to + 64);
}

}  // namespace quire::simt
