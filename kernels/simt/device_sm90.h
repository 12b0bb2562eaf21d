// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_DEVICE_SM90_H_
#define QUIRE_KERNELS_SIMT_DEVICE_SM90_H_

#include <cstdint>

#include "kernels/simt/device.h"

// The device half of simt_sm90.h, which documents each function. Code that uses it is compiled for sm_90a only.

namespace quire::simt {

constexpr int kWarpGroupThreads = 128;

// --- Warp groups

// Barrier 0 is for SyncBlock.
QUIRE_DEVICE void SyncWarpGroup() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + ThreadIndex() / kWarpGroupThreads), "n"(kWarpGroupThreads) : "memory");
}
template <int kRegisters>
QUIRE_DEVICE void LowerRegisters() {
  static_assert(kIsRegisterCount<kRegisters>);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
QUIRE_DEVICE void RaiseRegisters() {
  static_assert(kIsRegisterCount<kRegisters>);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// --- Barriers in shared memory

QUIRE_DEVICE void InitBarrier(uint64_t* b, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(b)), "r"(count) : "memory");
}
QUIRE_DEVICE void ArriveAtBarrier(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(b)) : "memory");
}
QUIRE_DEVICE void ArriveAndAnnounce(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(b)), "r"(bytes) : "memory");
}
// try_wait returns after a limited time, so it is repeated.
QUIRE_DEVICE void WaitForBarrier(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred has_ended;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 has_ended, [%0], %1;\n"
      "@!has_ended bra again;\n}" ::"r"(SharedAddress(b)),
      "r"(parity)
      : "memory");
}

// --- Copies

QUIRE_DEVICE void CopyBulk(void* shared, const void* global, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(SharedAddress(b))
               : "memory");
}
QUIRE_DEVICE void FenceAsyncProxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Products

QUIRE_DEVICE uint32_t PackFp8(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// The distance of 1024 bytes between groups of 8 rows, and the code of this permutation.
QUIRE_DEVICE uint64_t MatrixDescriptor(const void* shared, int panel_bytes) {
  constexpr uint64_t kRowGroups = uint64_t{1024 / 16} << 32, kPermuted = uint64_t{1} << 62;
  return kPermuted | kRowGroups | uint64_t(uint32_t(panel_bytes) / 16) << 16 | (SharedAddress(shared) / 16 & 0x3fff);
}
QUIRE_DEVICE uint64_t AtColumn(uint64_t descriptor, int column) {
  return descriptor + uint32_t(column) * 2 / 16;
}
QUIRE_DEVICE uint64_t AtRow(uint64_t descriptor, int row) {
  return descriptor + uint32_t(row) * 128 / 16;
}

// The compiler does not know that products change their registers later. This keeps other uses of these registers on
// their side of the products.
template <int kRows, int kColumns>
QUIRE_DEVICE void KeepInOrder(float (&d)[kRows][kColumns]) {
  QUIRE_UNROLL for (int i = 0; i < kRows * kColumns;
                    ++i) asm volatile("" : "+f"(d[i / kColumns][i % kColumns])::"memory");
}
template <int kRows, int kColumns>
QUIRE_DEVICE void BeginProducts(float (&d)[kRows][kColumns]) {
  KeepInOrder(d);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
QUIRE_DEVICE void CommitProducts() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kGroupsInFlight = 0, int kRows, int kColumns>
QUIRE_DEVICE void WaitForProducts(float (&d)[kRows][kColumns]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroupsInFlight) : "memory");
  KeepInOrder(d);
}

// The operands of inline assembly: 4 to 64 floats of an array of rows of kColumns.
#define QUIRE_FLOAT(i) "+f"(d[(i) / kColumns][(i) % kColumns])
#define QUIRE_FLOATS_4(i) QUIRE_FLOAT(i), QUIRE_FLOAT(i + 1), QUIRE_FLOAT(i + 2), QUIRE_FLOAT(i + 3)
#define QUIRE_FLOATS_8(i) QUIRE_FLOATS_4(i), QUIRE_FLOATS_4(i + 4)
#define QUIRE_FLOATS_16 QUIRE_FLOATS_8(0), QUIRE_FLOATS_8(8)
#define QUIRE_FLOATS_32 QUIRE_FLOATS_16, QUIRE_FLOATS_8(16), QUIRE_FLOATS_8(24)
#define QUIRE_FLOATS_64 QUIRE_FLOATS_32, QUIRE_FLOATS_8(32), QUIRE_FLOATS_8(40), QUIRE_FLOATS_8(48), QUIRE_FLOATS_8(56)
#define QUIRE_NAMES_32                                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define QUIRE_NAMES_64                                                                                \
  QUIRE_NAMES_32                                                                                      \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, " \
  "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define QUIRE_DEFINE_PRODUCTS(Name, NameOfRows, type)                                               \
  template <int kRows, int kColumns>                                                                \
  QUIRE_DEVICE void Name(float(&d)[kRows][kColumns], uint64_t a, uint64_t b, bool adds) {           \
    static_assert(kRows * kColumns == 64);                                                          \
    asm volatile(                                                                                   \
        "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"                                          \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" QUIRE_NAMES_64            \
        "}, %64, %65, adds, 1, 1, 0, 0;\n}"                                                         \
        : QUIRE_FLOATS_64                                                                           \
        : "l"(a), "l"(b), "r"(int(adds)));                                                          \
  }                                                                                                 \
  template <int kRows, int kColumns>                                                                \
  QUIRE_DEVICE void NameOfRows(float(&d)[kRows][kColumns], const uint32_t(&a)[4], uint64_t b) {     \
    static_assert(kRows * kColumns == 32 || kRows * kColumns == 64);                                \
    if constexpr (kRows * kColumns == 64) {                                                         \
      asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {" QUIRE_NAMES_64 \
                   "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"                                      \
                   : QUIRE_FLOATS_64                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                           \
    } else {                                                                                        \
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {" QUIRE_NAMES_32  \
                   "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                      \
                   : QUIRE_FLOATS_32                                                                \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                           \
    }                                                                                               \
  }
QUIRE_DEFINE_PRODUCTS(MultiplyBf16, MultiplyRowsBf16, "bf16")
QUIRE_DEFINE_PRODUCTS(MultiplyF16, MultiplyRowsF16, "f16")
#undef QUIRE_DEFINE_PRODUCTS

#define QUIRE_MULTIPLY_FP8(columns, names, floats, a_name, b_name, adds_name)                                   \
  asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, " adds_name                                              \
               ", 0;\n"                                                                                         \
               "wgmma.mma_async.sync.aligned.m64n" columns "k32.f32.e4m3.e4m3 {" names "}, " a_name ", " b_name \
               ", adds, 1, 1;\n}"                                                                               \
               : floats                                                                                         \
               : "l"(a), "l"(b), "r"(int(adds)))
template <int kRows, int kColumns>
QUIRE_DEVICE void MultiplyFp8(float (&d)[kRows][kColumns], uint64_t a, uint64_t b, bool adds) {
  static_assert(kColumns == 4 && (kRows == 1 || kRows == 2 || kRows == 4 || kRows == 8));
  if constexpr (kRows == 1) {
    QUIRE_MULTIPLY_FP8("8", "%0, %1, %2, %3", QUIRE_FLOATS_4(0), "%4", "%5", "%6");
  } else if constexpr (kRows == 2) {
    QUIRE_MULTIPLY_FP8("16", "%0, %1, %2, %3, %4, %5, %6, %7", QUIRE_FLOATS_8(0), "%8", "%9", "%10");
  } else if constexpr (kRows == 4) {
    QUIRE_MULTIPLY_FP8("32", "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15", QUIRE_FLOATS_16,
                       "%16", "%17", "%18");
  } else {
    QUIRE_MULTIPLY_FP8("64", QUIRE_NAMES_32, QUIRE_FLOATS_32, "%32", "%33", "%34");
  }
}
#undef QUIRE_MULTIPLY_FP8
#undef QUIRE_NAMES_64
#undef QUIRE_NAMES_32
#undef QUIRE_FLOATS_64
#undef QUIRE_FLOATS_32
#undef QUIRE_FLOATS_16
#undef QUIRE_FLOATS_8
#undef QUIRE_FLOATS_4
#undef QUIRE_FLOAT

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_DEVICE_SM90_H_
