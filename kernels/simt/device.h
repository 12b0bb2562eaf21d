// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_DEVICE_H_
#define QUIRE_KERNELS_SIMT_DEVICE_H_

#include <cstdint>
#include <cstring>

#include "kernels/simt/repeat.h"
#include "kernels/simt/types.h"

// The device half of simt.h, which documents each function. It needs sm_80 or newer. Copies, waits and ldmatrix have a
// memory clobber, so the compiler does not move other accesses across them.

namespace quire::simt {

// --- Position

QUIRE_DEVICE int ThreadIndex() {
  return static_cast<int>(threadIdx.x);
}
QUIRE_DEVICE int LaneIndex() {
  return static_cast<int>(threadIdx.x % kWarpSize);
}
QUIRE_DEVICE int WarpIndex() {
  return static_cast<int>(threadIdx.x / kWarpSize);
}
QUIRE_DEVICE int BlockIndex() {
  return static_cast<int>(blockIdx.x);
}
QUIRE_DEVICE int BlockSize() {
  return static_cast<int>(blockDim.x);
}
QUIRE_DEVICE int GridSize() {
  return static_cast<int>(gridDim.x);
}

QUIRE_DEVICE char* SharedMemory() {
  extern __shared__ __align__(1024) char quire_dynamic_shared_memory[];
  return quire_dynamic_shared_memory;
}

// --- Barriers

QUIRE_DEVICE void SyncBlock() {
  __syncthreads();
}
QUIRE_DEVICE void SyncWarp() {
  __syncwarp();
}
QUIRE_DEVICE void MemoryFence() {
  __threadfence();
}
QUIRE_DEVICE void MemoryFenceSystem() {
  __threadfence_system();
}

// --- Between lanes

constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T>
QUIRE_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <typename T>
QUIRE_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <typename T>
QUIRE_DEVICE T ShuffleUp(T value, int delta) {
  return __shfl_up_sync(kAllLanes, value, delta);
}
template <typename T>
QUIRE_DEVICE T ShuffleDown(T value, int delta) {
  return __shfl_down_sync(kAllLanes, value, delta);
}
QUIRE_DEVICE uint32_t Ballot(bool predicate) {
  return __ballot_sync(kAllLanes, predicate);
}
QUIRE_DEVICE bool Any(bool predicate) {
  return __any_sync(kAllLanes, predicate) != 0;
}
QUIRE_DEVICE bool All(bool predicate) {
  return __all_sync(kAllLanes, predicate) != 0;
}

// --- Memory

// The type that moves kBytes bytes in one instruction.
template <size_t kBytes>
struct AccessWord;
template <>
struct AccessWord<1> {
  using Type = unsigned char;
};
template <>
struct AccessWord<2> {
  using Type = unsigned short;
};
template <>
struct AccessWord<4> {
  using Type = unsigned int;
};
template <>
struct AccessWord<8> {
  using Type = uint2;
};
template <>
struct AccessWord<16> {
  using Type = uint4;
};

template <typename T>
using WordOf = typename AccessWord<sizeof(T)>::Type;

// The argument is passed by value, because a copy out of memory would be made byte by byte.
template <typename To, typename From>
QUIRE_DEVICE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

// The assumption gives ld.global. Otherwise a pointer from a parameter structure would give a generic ld.
template <typename T>
QUIRE_DEVICE T LoadGlobal(const T* p) {
  __builtin_assume(__isGlobal(p));
  return BitCast<T>(*reinterpret_cast<const WordOf<T>*>(p));
}
template <typename T>
QUIRE_DEVICE T LoadReadOnly(const T* p) {
  return BitCast<T>(__ldg(reinterpret_cast<const WordOf<T>*>(p)));
}
template <typename T>
QUIRE_DEVICE void StoreGlobal(T* p, typename SameType<T>::Type value) {
  __builtin_assume(__isGlobal(p));
  *reinterpret_cast<WordOf<T>*>(p) = BitCast<WordOf<T>>(value);
}
template <typename T>
QUIRE_DEVICE T LoadShared(const T* p) {
  __builtin_assume(__isShared(p));
  return BitCast<T>(*reinterpret_cast<const WordOf<T>*>(p));
}
template <typename T>
QUIRE_DEVICE void StoreShared(T* p, typename SameType<T>::Type value) {
  __builtin_assume(__isShared(p));
  *reinterpret_cast<WordOf<T>*>(p) = BitCast<WordOf<T>>(value);
}

QUIRE_DEVICE uint32_t AtomicAdd(uint32_t* p, uint32_t value) {
  return atomicAdd(p, value);
}
QUIRE_DEVICE uint64_t AtomicAdd(uint64_t* p, uint64_t value) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(value));
}
QUIRE_DEVICE float AtomicAdd(float* p, float value) {
  return atomicAdd(p, value);
}
QUIRE_DEVICE uint32_t AtomicMax(uint32_t* p, uint32_t value) {
  return atomicMax(p, value);
}
QUIRE_DEVICE uint32_t TakeTicket(uint32_t* p, uint32_t num_tickets) {
  return atomicInc(p, num_tickets - 1);
}

// --- Asynchronous copies

QUIRE_DEVICE uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

QUIRE_DEVICE void CopyAsync16(void* shared, const void* global, bool predicate) {
  const int bytes_read = predicate ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes_read)
               : "memory");
}
template <int kOffset>
QUIRE_DEVICE void CopyAsync16At(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0 + %2], [%1 + %2], 16;" ::"r"(shared), "l"(global), "n"(kOffset)
               : "memory");
}
template <int kCount, int kStride>
QUIRE_DEVICE void CopyAsync16Times(void* shared, const void* global) {
  const uint32_t to = SharedAddress(shared);
  const void* const from = reinterpret_cast<const void*>(__cvta_generic_to_global(global));
  Repeat<kCount>([&](auto i) { CopyAsync16At<i * kStride>(to, from); });
}
QUIRE_DEVICE void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kGroupsInFlight>
QUIRE_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsInFlight) : "memory");
}

// --- Matrices

template <int kOffset = 0>
QUIRE_DEVICE void LoadMatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row)), "n"(kOffset)
               : "memory");
}
template <int kOffset = 0>
QUIRE_DEVICE void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row)), "n"(kOffset)
               : "memory");
}
QUIRE_DEVICE void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
QUIRE_DEVICE void MmaF16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
QUIRE_DEVICE void MmaS8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- Arithmetic

QUIRE_DEVICE float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
QUIRE_DEVICE float Log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
QUIRE_DEVICE float Reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
QUIRE_DEVICE float ReciprocalSqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

QUIRE_DEVICE uint32_t PackBf16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
QUIRE_DEVICE uint32_t PackF16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
QUIRE_DEVICE float LowBf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
QUIRE_DEVICE float HighBf16(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}
QUIRE_DEVICE float LowF16(uint32_t pair) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(pair));
  return value;
}
QUIRE_DEVICE float HighF16(uint32_t pair) {
  float value;
  asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}" : "=f"(value) : "r"(pair));
  return value;
}

QUIRE_DEVICE uint32_t FmaBf16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}
QUIRE_DEVICE uint32_t FmaF16(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t sums;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(b), "r"(c));
  return sums;
}

// The compiler makes two instructions of an expression with two constants.
QUIRE_DEVICE uint32_t AndOr(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
  return bits;
}
QUIRE_DEVICE uint32_t AndXor(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(bits) : "r"(a), "r"(b), "r"(c));
  return bits;
}
QUIRE_DEVICE int CountBits(uint32_t x) {
  return __popc(x);
}

QUIRE_DEVICE int RoundToInt(float x) {
  return __float2int_rn(x);
}
QUIRE_DEVICE float RoundedProduct(float a, float b) {
  return __fmul_rn(a, b);
}

QUIRE_DEVICE int Opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// --- Programmatic dependent launch

QUIRE_DEVICE void WaitForPriorGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
QUIRE_DEVICE void TriggerNextGrid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_DEVICE_H_
