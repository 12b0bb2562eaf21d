// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_EMULATOR_SM90_H_
#define QUIRE_KERNELS_SIMT_EMULATOR_SM90_H_

#include <cstdint>

#include "kernels/fp8.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/warp_group_operations.h"

// The emulated half of simt_sm90.h, which documents each function.

namespace quire::simt {

// --- Warp groups

inline void SyncWarpGroup(Place place = Place::current()) {
  GridEmulator::Current().GroupOperation(Operation::kSyncWarpGroup, nullptr, place);
}
template <int kRegisters>
void LowerRegisters() {
  static_assert(kIsRegisterCount<kRegisters>);
}
template <int kRegisters>
void RaiseRegisters() {
  static_assert(kIsRegisterCount<kRegisters>);
}

// --- Barriers in shared memory

inline void InitBarrier(uint64_t* b, uint32_t count, Place place = Place::current()) {
  GridEmulator::Current().InitBarrier(b, count, place);
}
inline void ArriveAtBarrier(uint64_t* b, Place place = Place::current()) {
  GridEmulator::Current().ArriveAtBarrier(b, 0, place);
}
inline void ArriveAndAnnounce(uint64_t* b, uint32_t bytes, Place place = Place::current()) {
  GridEmulator::Current().ArriveAtBarrier(b, bytes, place);
}
inline void WaitForBarrier(uint64_t* b, uint32_t parity, Place place = Place::current()) {
  GridEmulator::Current().WaitForBarrier(b, parity, place);
}

// --- Copies

inline void CopyBulk(void* shared, const void* global, uint32_t bytes, uint64_t* b, Place place = Place::current()) {
  GridEmulator::Current().CopyBulk(shared, global, bytes, b, place);
}
inline void FenceAsyncProxy(Place place = Place::current()) {
  GridEmulator::Current().FenceAsyncProxy(place);
}

// --- Products

inline uint32_t PackFp8(float low, float high) {
  return uint32_t{FloatToFp8(low)} | uint32_t{FloatToFp8(high)} << 8;
}

inline uint64_t MatrixDescriptor(const void* shared, int panel_bytes) {
  return MatrixInShared::Descriptor(static_cast<const char*>(shared) - SharedMemory(), panel_bytes);
}
inline uint64_t AtColumn(uint64_t descriptor, int column) {
  return descriptor + uint32_t(column) * 2 / 16;
}
inline uint64_t AtRow(uint64_t descriptor, int row) {
  return descriptor + uint32_t(row) * 128 / 16;
}

template <int kRows, int kColumns>
void BeginProducts(float (&)[kRows][kColumns], Place place = Place::current()) {
  GridEmulator::Current().GroupOperation(Operation::kBeginProducts, nullptr, place);
}
inline void CommitProducts(Place place = Place::current()) {
  GridEmulator::Current().GroupOperation(Operation::kCommitProducts, nullptr, place);
}
template <int kGroupsInFlight = 0, int kRows, int kColumns>
void WaitForProducts(float (&)[kRows][kColumns], Place place = Place::current()) {
  static constexpr int kInFlight = kGroupsInFlight;
  GridEmulator::Current().GroupOperation(Operation::kWaitForProducts, &kInFlight, place);
}

template <int kRows, int kColumns>
void Multiply(float (&d)[kRows][kColumns], uint64_t a, uint64_t b, bool adds, MmaType type, Place place) {
  static_assert(kRows * kColumns == 64);
  const ProductInput in = {.a_rows = nullptr,
                           .a = a,
                           .b = b,
                           .type = type,
                           .num_columns = 128,
                           .is_b_by_rows = false,
                           .adds = adds,
                           .d = &d[0][0]};
  GridEmulator::Current().GroupOperation(Operation::kMultiply, &in, place);
}
template <int kRows, int kColumns>
void MultiplyRows(float (&d)[kRows][kColumns], const uint32_t (&a)[4], uint64_t b, MmaType type, Place place) {
  static_assert(kRows * kColumns == 32 || kRows * kColumns == 64);
  const ProductInput in = {.a_rows = a,
                           .a = 0,
                           .b = b,
                           .type = type,
                           .num_columns = 2 * kRows * kColumns,
                           .is_b_by_rows = true,
                           .adds = true,
                           .d = &d[0][0]};
  GridEmulator::Current().GroupOperation(Operation::kMultiplyRows, &in, place);
}

template <int kRows, int kColumns>
void MultiplyBf16(float (&d)[kRows][kColumns], uint64_t a, uint64_t b, bool adds, Place place = Place::current()) {
  Multiply(d, a, b, adds, MmaType::kBf16, place);
}
template <int kRows, int kColumns>
void MultiplyF16(float (&d)[kRows][kColumns], uint64_t a, uint64_t b, bool adds, Place place = Place::current()) {
  Multiply(d, a, b, adds, MmaType::kF16, place);
}
template <int kRows, int kColumns>
void MultiplyRowsBf16(float (&d)[kRows][kColumns], const uint32_t (&a)[4], uint64_t b, Place place = Place::current()) {
  MultiplyRows(d, a, b, MmaType::kBf16, place);
}
template <int kRows, int kColumns>
void MultiplyRowsF16(float (&d)[kRows][kColumns], const uint32_t (&a)[4], uint64_t b, Place place = Place::current()) {
  MultiplyRows(d, a, b, MmaType::kF16, place);
}

template <int kRows>
void MultiplyFp8(float (&d)[kRows][4], uint64_t a, uint64_t b, bool adds, Place place = Place::current()) {
  const ProductInput in = {.a_rows = nullptr,
                           .a = a,
                           .b = b,
                           .type = MmaType::kFp8,
                           .num_columns = 8 * kRows,
                           .is_b_by_rows = false,
                           .adds = adds,
                           .d = &d[0][0]};
  GridEmulator::Current().GroupOperation(Operation::kMultiply, &in, place);
}

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_EMULATOR_SM90_H_
