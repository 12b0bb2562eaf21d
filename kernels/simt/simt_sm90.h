// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_SIMT_SM90_H_
#define QUIRE_KERNELS_SIMT_SIMT_SM90_H_

// The part of the device layer that only compute capability 9.0 has (nvcc's sm_90a): barriers in shared memory, copies
// of whole pieces, and products of matrices in shared memory by warp groups. A warp group is four consecutive warps,
// 128 threads. simt.h has everything else.
//
// Warp groups
//   void SyncWarpGroup()      bar.sync: the 128 threads of my warp group; orders their memory accesses
//   void LowerRegisters<N>(), RaiseRegisters<N>()
//                             setmaxnreg: from here on my warp group has N registers per thread; all its threads call
//                             it
//
// Barriers in shared memory   A barrier has phases. A phase ends when `count` threads have arrived and all bytes that
//                             were announced in it have landed. Then the next phase begins.
//   void InitBarrier(uint64_t* b, uint32_t count)   mbarrier.init, by one thread; FenceAsyncProxy and SyncBlock follow
//   void ArriveAtBarrier(uint64_t* b)               mbarrier.arrive: publishes what my warp did before its last
//                                                   SyncWarp, and the products for which it has waited
//   void ArriveAndAnnounce(uint64_t* b, uint32_t bytes)   mbarrier.arrive.expect_tx
//   void WaitForBarrier(uint64_t* b, uint32_t parity)     mbarrier.try_wait: until the phase with this parity has
//   ended.
//                             The first phase has parity 0, the second 1, the third 0. Parity 1 is over at the start.
//
// Copies                      Bulk copies and products access shared memory through the asynchronous proxy.
//   void CopyBulk(void* shared, const void* global, uint32_t bytes, uint64_t* b)
//                             cp.async.bulk: addresses and size are multiples of 16. It lands before the phase of `b`
//                             ends in which its bytes are announced.
//   void FenceAsyncProxy()    fence.proxy.async: my earlier stores come before later asynchronous accesses
//
// Products                    all 128 threads of a warp group, at the same instruction. a has 64 rows. Row 16 w + r
//                             belongs to warp w. The registers of a and d are as in MmaBf16: d[j] has the columns
//                             8 j to 8 j + 7. An array of n floats can be declared as [n / 4][4] or [n / 8][8].
//   uint64_t MatrixDescriptor(const void* shared, int panel_bytes)
//                             Describes a matrix in panels of 64 elements. A panel row has 128 bytes, 8 chunks of 16.
//                             Chunk c of row r is at place c ^ (r % 8), and panels are panel_bytes apart. The address
//                             of a panel is a multiple of 1024. Other matrices begin inside it: AtColumn and AtRow.
//   uint64_t AtColumn(uint64_t descriptor, int column)    from this column of the first panel on; a multiple of 16
//   uint64_t AtRow(uint64_t descriptor, int row)          from this row on; a multiple of 8
//   void BeginProducts(d)     wgmma.fence: before the first product after d or a were touched
//   void MultiplyBf16(d, uint64_t a, uint64_t b, bool adds)
//                             wgmma.m64n128k16: d[64][128] = a[64][16] b[128][16]^T, or d += that; rows in shared
//                             memory
//   void MultiplyRowsBf16(d, const uint32_t (&a)[4], uint64_t b)
//                             wgmma.m64nNk16, N = 64 or 128: d[64][N] += a[64][16] b[16][N], with a in registers
//   void MultiplyF16, MultiplyRowsF16   the same with float16
//   void MultiplyFp8(d, uint64_t a, uint64_t b, bool adds)
//                             wgmma.m64nNk32, N = 8, 16, 32 or 64: d[64][N] = a[64][32] b[N][32]^T, or d += that, of
//                             numbers of FP8 (E4M3); rows in shared memory, of which 128 numbers are a panel row. The
//                             sums have fewer bits than float32.
//   uint32_t PackFp8(float low, float high)   two bytes of E4M3, rounded to nearest even; too large numbers become 448
//   void CommitProducts()     wgmma.commit_group: the products since the last commit become a group
//   void WaitForProducts<N = 0>(d)   wgmma.wait_group N: all groups but the latest N are done. d, which belongs to a
//                             group that is done, is valid, and the a and b of these groups may be overwritten. Before
//                             it, nobody may touch them.

#include "kernels/simt/simt.h"

#if defined(__CUDACC__)
#include "kernels/simt/device_sm90.h"
#else
#include "kernels/simt/emulator_sm90.h"
#endif

#endif  // QUIRE_KERNELS_SIMT_SIMT_SM90_H_
