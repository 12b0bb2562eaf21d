// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_SIMT_H_
#define QUIRE_KERNELS_SIMT_SIMT_H_

// The device layer: all operations of the hardware that a GPU kernel uses, as about 40 functions of `quire::simt`. nvcc
// compiles each of them to one instruction (device.h). Any other compiler uses an emulator in which every thread is a
// fiber (emulator.h). So a kernel is written once, in a header, and also runs and is checked on the CPU. README.md has
// the rules. In the list below, "my" refers to the calling thread.
//
// Position                    grids and blocks have one dimension; a block has whole warps of 32 lanes
//   int ThreadIndex()         of the block
//   int LaneIndex()           of the warp
//   int WarpIndex()           of the block
//   int BlockIndex()          of the grid
//   int BlockSize()           threads of a block
//   int GridSize()            blocks of the grid
//   char* SharedMemory()      the dynamic shared memory of the block, aligned to 1024 bytes; at first undefined
//
// Barriers
//   void SyncBlock()          bar.sync: all threads of the block; orders all their memory accesses
//   void SyncWarp()           all 32 lanes; orders the warp's memory accesses
//   void MemoryFence()        membar.gl: the device sees my accesses before the fence first, then the later ones
//   void MemoryFenceSystem()  membar.sys: the same for the host (results in pinned host memory)
//
// Between lanes               all 32 lanes call the same one; none of them orders memory. T has 4 or 8 bytes.
//   T Shuffle(T v, int lane)  shfl.idx: the v of `lane` (mod 32)
//   T ShuffleXor(T v, int m)  shfl.bfly: the v of lane ^ m
//   T ShuffleUp(T v, int d)   shfl.up: the v of lane - d, my own in the first d lanes
//   T ShuffleDown(T v, int d) shfl.down: the v of lane + d, my own in the last d lanes
//   uint32_t Ballot(bool p)   vote.ballot: bit i is the p of lane i
//   bool Any(bool p), All(bool p)
//
// Memory                      T has 1, 2, 4, 8 or 16 bytes, and the address is a multiple of that
//   T LoadGlobal(const T* p)            ld.global
//   T LoadReadOnly(const T* p)          ld.global.nc: the data must not be written while the kernel runs
//   void StoreGlobal(T* p, T v)         st.global
//   T LoadShared(const T* p)            ld.shared
//   void StoreShared(T* p, T v)         st.shared
//   T AtomicAdd(T* p, T v)              uint32_t, uint64_t, float; shared or global; returns the old value
//   uint32_t AtomicMax(uint32_t* p, uint32_t v)
//   uint32_t TakeTicket(uint32_t* p, uint32_t n)   atom.inc: 0, 1, ... n - 1, then 0 again; n - 1 is the last ticket
//
// Asynchronous copies         16 bytes per lane, both addresses multiples of 16
//   void CopyAsync16(void* shared, const void* global, bool pred)
//                             cp.async.cg: do not access `shared` before the wait; if pred is false, it writes zeros
//                             and does not read `global`
//   void CopyAsync16Times<N, kStride>(void* shared, const void* global)
//                             N copies. Both addresses of each are kStride bytes behind the copy before.
//   void CommitCopies()       cp.async.commit_group: my copies since the last commit become a group (may be empty)
//   void WaitCopies<N>()      cp.async.wait_group: waits until all of my groups except the latest N have landed. I see
//                             them then; other threads see them after the next barrier.
//
// Matrices                    all 32 lanes, at the same instruction
//   void LoadMatrix4(uint32_t (&r)[4], const void* row)
//                             ldmatrix.x4: four 8x8 matrices of 16-bit elements. Lane i gives the address of row i % 8
//                             of matrix i / 8: 16 bytes, aligned. LoadMatrix4<kOffset> adds a constant to the address,
//                             for which a GPU needs no instruction. r[m] becomes the pair (g, 2t), (g, 2t+1) of matrix
//                             m, where g = lane / 4 and t = lane % 4 here and below.
//   void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row)
//                             ldmatrix.x4.trans: the same, with transposed matrices
//   void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
//                             mma.m16n8k16: c[16][8] += a[16][16] b[16][8], sums in float32
//                             a: pairs (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), each with its right neighbour
//                             b: pairs (2t, g), (2t+8, g), each with its neighbour below
//                             c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
//   void MmaF16(...)          the same with float16
//   void MmaS8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
//                             mma.m16n8k32: c[16][8] += a[16][32] b[32][8], signed bytes and exact sums of 32 bits
//                             a: four bytes (g, 4t), (g+8, 4t), (g, 4t+16), (g+8, 4t+16), each with its three right
//                             neighbours
//                             b: four bytes (4t, g), (4t+16, g), each with its three neighbours below
//                             c: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)
//
// Arithmetic                  approximate (about 2^-22), results below 2^-126 become zero
//   float Exp2(x), Log2(x), Reciprocal(x), ReciprocalSqrt(x)
//   uint32_t PackBf16(float low, float high), PackF16(low, high)   rounds to nearest even
//   float LowBf16(uint32_t), HighBf16(uint32_t), LowF16(uint32_t), HighF16(uint32_t)
//   uint32_t FmaBf16(uint32_t a, b, c), FmaF16(a, b, c)   fma of pairs: a b + c for both halves, rounded once to
//   nearest
//                             even, with subnormal numbers
//   uint32_t AndOr(uint32_t a, b, c)   (a & b) | c, in one instruction even if b and c are constants
//   uint32_t AndXor(uint32_t a, b, c)  (a & b) ^ c, in the same way
//   int CountBits(uint32_t x)   popc: the number of ones
//   int RoundToInt(float x)   the nearest whole number, ties to even; for |x| < 2^31
//   float RoundedProduct(float a, float b)   mul.rn: a * b, which the compiler never joins with an addition
//   void Repeat<N>(f)         calls f(i) for i = 0 to N - 1, where i can be a template argument (repeat.h)
//   int Opaque(int x)         returns x, but the compiler does not know that: it keeps dependent code inside loops
//
// Programmatic dependent launch (sm_90; nothing on older devices)
//   void WaitForPriorGrid()   griddepcontrol.wait: makes the writes of earlier kernels of the stream visible
//   void TriggerNextGrid()    griddepcontrol.launch_dependents: the next kernel may start; does not publish my writes

#if defined(__CUDACC__)
#define QUIRE_DEVICE __device__ __forceinline__
#define QUIRE_UNROLL _Pragma("unroll")
#define QUIRE_NO_UNROLL _Pragma("unroll 1")
#include "kernels/simt/device.h"
#else
#define QUIRE_DEVICE inline
#define QUIRE_UNROLL
#define QUIRE_NO_UNROLL
#include "kernels/simt/emulator.h"
#endif

#endif  // QUIRE_KERNELS_SIMT_SIMT_H_
