// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_EMULATOR_H_
#define QUIRE_KERNELS_SIMT_EMULATOR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/half_float.h"
#include "kernels/simt/grid_emulator.h"
#include "kernels/simt/repeat.h"
#include "kernels/simt/types.h"
#include "kernels/simt/warp_operations.h"

// The emulated half of simt.h, which documents each function. It delegates to the GridEmulator of the launch. Kernels
// do not pass the last argument of a function, `place`. Its default is the line of the call.

namespace quire::simt {

// --- Position

inline int ThreadIndex() {
  return GridEmulator::Current().thread();
}
inline int LaneIndex() {
  return ThreadIndex() % kWarpSize;
}
inline int WarpIndex() {
  return ThreadIndex() / kWarpSize;
}
inline int BlockIndex() {
  return GridEmulator::Current().block();
}
inline int BlockSize() {
  return GridEmulator::Current().config().num_threads;
}
inline int GridSize() {
  return GridEmulator::Current().config().num_blocks;
}
inline char* SharedMemory() {
  return GridEmulator::Current().shared_memory();
}

// --- Barriers. Fences only define which blocks may rely on each other.

inline void SyncBlock(Place place = Place::current()) {
  GridEmulator::Current().SyncBlock(place);
}
inline void SyncWarp(Place place = Place::current()) {
  GridEmulator::Current().Collective(Operation::kSyncWarp, nullptr, nullptr, place);
}
inline void MemoryFence() {
  GridEmulator::Current().MemoryFence();
}
inline void MemoryFenceSystem() {
  GridEmulator::Current().MemoryFence();
}

// --- Between lanes

template <typename T>
T ShuffleFrom(T value, int source_lane, Operation operation, Place place) {
  static_assert((sizeof(T) == 4 || sizeof(T) == 8) && std::is_trivially_copyable_v<T>);
  ShuffleInput in = {0, source_lane};
  std::memcpy(&in.value, &value, sizeof(T));
  uint64_t out = 0;
  GridEmulator::Current().Collective(operation, &in, &out, place);
  std::memcpy(&value, &out, sizeof(T));
  return value;
}

template <typename T>
T Shuffle(T value, int lane, Place place = Place::current()) {
  return ShuffleFrom(value, lane & (kWarpSize - 1), Operation::kShuffle, place);
}
template <typename T>
T ShuffleXor(T value, int mask, Place place = Place::current()) {
  return ShuffleFrom(value, (LaneIndex() ^ mask) & (kWarpSize - 1), Operation::kShuffleXor, place);
}
template <typename T>
T ShuffleUp(T value, int delta, Place place = Place::current()) {
  const int source = LaneIndex() - delta;
  return ShuffleFrom(value, source < 0 ? LaneIndex() : source, Operation::kShuffleUp, place);
}
template <typename T>
T ShuffleDown(T value, int delta, Place place = Place::current()) {
  const int source = LaneIndex() + delta;
  return ShuffleFrom(value, source >= kWarpSize ? LaneIndex() : source, Operation::kShuffleDown, place);
}

inline uint32_t Ballot(bool predicate, Place place = Place::current()) {
  uint32_t bits = 0;
  GridEmulator::Current().Collective(Operation::kBallot, &predicate, &bits, place);
  return bits;
}
inline bool Any(bool predicate, Place place = Place::current()) {
  return Ballot(predicate, place) != 0;
}
inline bool All(bool predicate, Place place = Place::current()) {
  return Ballot(predicate, place) == ~uint32_t{0};
}

// --- Memory

template <typename T>
T LoadGlobal(const T* p, Place place = Place::current()) {
  static_assert(kIsAccessSize<T> && std::is_trivially_copyable_v<T>);
  T value;
  GridEmulator::Current().LoadGlobal(p, &value, sizeof(T), Operation::kLoadGlobal, place);
  return value;
}
template <typename T>
T LoadReadOnly(const T* p, Place place = Place::current()) {
  static_assert(kIsAccessSize<T> && std::is_trivially_copyable_v<T>);
  T value;
  GridEmulator::Current().LoadGlobal(p, &value, sizeof(T), Operation::kLoadReadOnly, place);
  return value;
}
template <typename T>
void StoreGlobal(T* p, typename SameType<T>::Type value, Place place = Place::current()) {
  static_assert(kIsAccessSize<T> && std::is_trivially_copyable_v<T>);
  GridEmulator::Current().StoreGlobal(p, &value, sizeof(T), place);
}
template <typename T>
T LoadShared(const T* p, Place place = Place::current()) {
  static_assert(kIsAccessSize<T> && std::is_trivially_copyable_v<T>);
  T value;
  GridEmulator::Current().LoadShared(p, &value, sizeof(T), place);
  return value;
}
template <typename T>
void StoreShared(T* p, typename SameType<T>::Type value, Place place = Place::current()) {
  static_assert(kIsAccessSize<T> && std::is_trivially_copyable_v<T>);
  GridEmulator::Current().StoreShared(p, &value, sizeof(T), place);
}

// Replaces *p by update(*p) and returns the old value. Returns zero if the access is not allowed.
template <typename T, typename Update>
T AtomicUpdate(T* p, Update update, Place place) {
  T old = 0;
  if (!GridEmulator::Current().CheckAtomic(p, sizeof(T), place)) return old;
  std::memcpy(&old, static_cast<const void*>(p), sizeof(T));
  const T updated = update(old);
  std::memcpy(static_cast<void*>(p), &updated, sizeof(T));
  return old;
}

template <typename T>
T AtomicAdd(T* p, typename SameType<T>::Type value, Place place = Place::current()) {
  static_assert(std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t> || std::is_same_v<T, float>);
  return AtomicUpdate(
      p, [&](T old) { return old + value; }, place);
}
inline uint32_t AtomicMax(uint32_t* p, uint32_t value, Place place = Place::current()) {
  return AtomicUpdate(
      p, [&](uint32_t old) { return std::max(old, value); }, place);
}
inline uint32_t TakeTicket(uint32_t* p, uint32_t num_tickets, Place place = Place::current()) {
  return AtomicUpdate(
      p, [&](uint32_t old) { return old >= num_tickets - 1 ? 0 : old + 1; }, place);
}

// --- Asynchronous copies

inline void CopyAsync16(void* shared, const void* global, bool predicate, Place place = Place::current()) {
  GridEmulator::Current().CopyAsync16(shared, global, predicate, place);
}
template <int kCount, int kStride>
void CopyAsync16Times(void* shared, const void* global, Place place = Place::current()) {
  for (int i = 0; i < kCount; ++i) {
    CopyAsync16(static_cast<char*>(shared) + i * kStride, static_cast<const char*>(global) + i * kStride, true, place);
  }
}
inline void CommitCopies() {
  GridEmulator::Current().CommitCopies();
}
template <int kGroupsInFlight>
void WaitCopies(Place place = Place::current()) {
  GridEmulator::Current().WaitCopies(kGroupsInFlight, place);
}

// --- Matrices

template <int kOffset = 0>
void LoadMatrix4(uint32_t (&r)[4], const void* row, Place place = Place::current()) {
  GridEmulator::Current().Collective(Operation::kLoadMatrix4, static_cast<const char*>(row) + kOffset, r, place);
}
template <int kOffset = 0>
void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row, Place place = Place::current()) {
  GridEmulator::Current().Collective(Operation::kLoadMatrix4Transposed, static_cast<const char*>(row) + kOffset, r,
                                     place);
}
inline void MmaBf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Place place = Place::current()) {
  const MmaInput in = {a, b0, b1};
  GridEmulator::Current().Collective(Operation::kMmaBf16, &in, c, place);
}
inline void MmaF16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Place place = Place::current()) {
  const MmaInput in = {a, b0, b1};
  GridEmulator::Current().Collective(Operation::kMmaF16, &in, c, place);
}
inline void MmaS8(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Place place = Place::current()) {
  const MmaInput in = {a, b0, b1};
  GridEmulator::Current().Collective(Operation::kMmaS8, &in, c, place);
}

// --- Arithmetic. The device's instructions treat subnormal inputs and results as zero (.ftz).

inline float FlushSubnormal(float x) {
  return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x;
}
inline float Exp2(float x) {
  return FlushSubnormal(std::exp2(FlushSubnormal(x)));
}
inline float Log2(float x) {
  return FlushSubnormal(std::log2(FlushSubnormal(x)));
}
inline float Reciprocal(float x) {
  return FlushSubnormal(1.0f / FlushSubnormal(x));
}
inline float ReciprocalSqrt(float x) {
  return FlushSubnormal(1.0f / std::sqrt(FlushSubnormal(x)));
}

// The device represents every NaN as 0x7fff.
inline uint32_t PackBf16(float low, float high) {
  const auto narrow = [](float x) -> uint32_t { return std::isnan(x) ? 0x7fff : ToBFloat16(x).bits; };
  return narrow(low) | narrow(high) << 16;
}
inline uint32_t PackF16(float low, float high) {
  const auto narrow = [](float x) -> uint32_t { return std::isnan(x) ? 0x7fff : ToFloat16(x).bits; };
  return narrow(low) | narrow(high) << 16;
}
inline float LowBf16(uint32_t pair) {
  return ToFloat(BFloat16{static_cast<uint16_t>(pair)});
}
inline float HighBf16(uint32_t pair) {
  return ToFloat(BFloat16{static_cast<uint16_t>(pair >> 16)});
}
inline float LowF16(uint32_t pair) {
  return ToFloat(Float16{static_cast<uint16_t>(pair)});
}
inline float HighF16(uint32_t pair) {
  return ToFloat(Float16{static_cast<uint16_t>(pair >> 16)});
}

// The sum is rounded to float32 before it is rounded to 16 bits. That makes no difference where the result is exact.
inline uint32_t FmaBf16(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [&](int shift) {
    const auto value = [shift](uint32_t pair) { return double{ToFloat(BFloat16{uint16_t(pair >> shift)})}; };
    return uint32_t{ToBFloat16(static_cast<float>(value(a) * value(b) + value(c))).bits} << shift;
  };
  return half(0) | half(16);
}
inline uint32_t FmaF16(uint32_t a, uint32_t b, uint32_t c) {
  const auto half = [&](int shift) {
    const auto value = [shift](uint32_t pair) { return double{ToFloat(Float16{uint16_t(pair >> shift)})}; };
    return uint32_t{ToFloat16(static_cast<float>(value(a) * value(b) + value(c))).bits} << shift;
  };
  return half(0) | half(16);
}

inline uint32_t AndOr(uint32_t a, uint32_t b, uint32_t c) {
  return (a & b) | c;
}
inline uint32_t AndXor(uint32_t a, uint32_t b, uint32_t c) {
  return (a & b) ^ c;
}
inline int CountBits(uint32_t x) {
  return __builtin_popcount(x);
}

inline int RoundToInt(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline float RoundedProduct(float a, float b) {
  return a * b;  // The project is compiled with -ffp-contract=off.
}

inline int Opaque(int x) {
  return x;
}

// --- Programmatic dependent launch

inline void WaitForPriorGrid() {
  GridEmulator::Current().WaitForPriorGrid();
}
inline void TriggerNextGrid() {}

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_EMULATOR_H_
