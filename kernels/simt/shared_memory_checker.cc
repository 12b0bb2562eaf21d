// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/shared_memory_checker.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace quire::simt {
namespace {

constexpr size_t kCopyBytes = 16;
constexpr int kPoison = 0xff;

char* AllocateAligned(size_t bytes) {
  const size_t alignment = SharedMemoryChecker::kAlignment;
  void* const p = std::aligned_alloc(alignment, (bytes / alignment + 1) * alignment);
  if (p == nullptr) std::abort();
  return static_cast<char*>(p);
}

}  // namespace

void SharedMemoryChecker::Free::operator()(char* p) const {
  std::free(p);
}

SharedMemoryChecker::SharedMemoryChecker(size_t bytes, const BarrierClock* clock, ProblemLog* log)
    : bytes_(bytes),
      data_(AllocateAligned(bytes)),
      clock_(clock),
      log_(log),
      histories_(bytes),
      product_reads_(bytes, clock),
      fences_(clock->num_warps() * kWarpSize) {}

bool SharedMemoryChecker::Contains(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto begin = reinterpret_cast<uintptr_t>(data_.get());
  return address >= begin && address < begin + bytes_;
}

void SharedMemoryChecker::Reset(int block) {
  block_ = block;
  std::memset(data_.get(), kPoison, bytes_);
  histories_.Reset();
  product_reads_.Reset();
  std::fill(fences_.begin(), fences_.end(), 0);
}

bool SharedMemoryChecker::IsInBounds(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  // The numbers are unsigned, so a pointer before the memory has a huge offset.
  const size_t offset = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(data_.get());
  if (offset > bytes_ || bytes > bytes_ - offset) {
    log_->Report(ProblemKind::kSharedOutOfBounds, {by.place, block_, by.thread}, [&] {
      return std::string(Name(operation)) + " of " + std::to_string(bytes) + " bytes at offset " +
             std::to_string(static_cast<int64_t>(offset)) + " of " + std::to_string(bytes_);
    });
    return false;
  }
  if (offset % bytes != 0) {
    log_->Report(ProblemKind::kMisaligned, {by.place, block_, by.thread}, [&] {
      return std::string(Name(operation)) + " of " + std::to_string(bytes) + " bytes at offset " +
             std::to_string(offset) + " of shared memory";
    });
  }
  return true;
}

void SharedMemoryChecker::ReportRace(const AccessHistory& history, bool with_write, const void* p, Operation operation,
                                     const Accessor& by) {
  const AccessSummary& earlier = with_write ? history.writes : history.reads;
  log_->Report(ProblemKind::kSharedRace, {by.place, block_, by.thread, earlier.place}, [&] {
    std::string text = std::string(Name(operation)) + " at offset " + std::to_string(OffsetOf(p)) + " collides with ";
    text += with_write ? (history.is_in_flight ? "a copy in flight" : "the write") : "a read";
    if (earlier.thread == AccessSummary::kSeveralThreads)
      return text + " by several threads at " + ToString(earlier.place);
    return text + " by thread " + std::to_string(earlier.thread) + " at " + ToString(earlier.place);
  });
}

bool SharedMemoryChecker::CheckRead(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  if (!IsInBounds(p, bytes, operation, by)) return false;
  histories_.ForEach(OffsetOf(p), bytes, [&](AccessHistory& history) {
    if (history.is_in_flight || history.writes.Collides(by, *clock_)) ReportRace(history, true, p, operation, by);
    if (!history.is_initialized && !history.is_in_flight) {
      log_->Report(ProblemKind::kUninitializedRead, {by.place, block_, by.thread}, [&] {
        return std::string(Name(operation)) + " at offset " + std::to_string(OffsetOf(p)) +
               ", where nobody of this block has written";
      });
    }
    history.reads.Add(by, *clock_);
  });
  return true;
}

bool SharedMemoryChecker::CheckWrite(void* p, size_t bytes, Operation operation, const Accessor& by) {
  if (!IsInBounds(p, bytes, operation, by)) return false;
  histories_.ForEach(OffsetOf(p), bytes, [&](AccessHistory& history) {
    if (history.is_in_flight || history.writes.Collides(by, *clock_)) {
      ReportRace(history, true, p, operation, by);
    } else if (history.reads.Collides(by, *clock_)) {
      ReportRace(history, false, p, operation, by);
    }
    history.writes.Set(by, *clock_);
    history.is_atomic = false;
    history.is_initialized = true;
  });
  CheckProductReads(p, bytes, operation, by);
  return true;
}

bool SharedMemoryChecker::CheckAtomic(void* p, size_t bytes, const Accessor& by) {
  if (!IsInBounds(p, bytes, Operation::kAtomic, by)) return false;
  histories_.ForEach(OffsetOf(p), bytes, [&](AccessHistory& history) {
    if (history.is_in_flight || (!history.is_atomic && history.writes.Collides(by, *clock_))) {
      ReportRace(history, true, p, Operation::kAtomic, by);
    } else if (history.reads.Collides(by, *clock_)) {
      ReportRace(history, false, p, Operation::kAtomic, by);
    }
    if (!history.is_initialized) {
      log_->Report(ProblemKind::kUninitializedRead, {by.place, block_, by.thread}, [&] {
        return "an atomic at offset " + std::to_string(OffsetOf(p)) + ", where nobody of this block has written";
      });
    }
    history.writes.Add(by, *clock_);
    history.is_atomic = true;
    history.is_initialized = true;
  });
  return true;
}

void SharedMemoryChecker::CheckProductReads(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  const Place* const read = product_reads_.FindCollision(OffsetOf(p), bytes, by);
  if (read == nullptr) return;
  log_->Report(ProblemKind::kSharedRace, {by.place, block_, by.thread, *read}, [&] {
    return std::string(Name(operation)) + " at offset " + std::to_string(OffsetOf(p)) +
           " collides with a read by a product at " + ToString(*read);
  });
}

bool SharedMemoryChecker::BeginCopy(void* p, const Accessor& by) {
  if (!CheckWrite(p, kCopyBytes, Operation::kCopyAsync16, by)) return false;
  histories_.ForEach(OffsetOf(p), kCopyBytes, [](AccessHistory& history) { history.is_in_flight = true; });
  return true;
}

void SharedMemoryChecker::EndCopy(void* p, const Accessor& by) {
  histories_.ForEach(OffsetOf(p), kCopyBytes, [&](AccessHistory& history) {
    history.writes.Set(by, *clock_);
    history.is_in_flight = false;
  });
}

// A thread that accesses memory after its fence has a larger stamp, because other operations than the fence follow.
void SharedMemoryChecker::CheckAsyncFence(const AccessHistory& history, const void* p, Operation operation,
                                          const Accessor& by) {
  const AccessSummary& writes = history.writes;
  const bool is_plain = writes.stamp > 0 && writes.thread != AccessSummary::kSeveralThreads;
  if (!is_plain || history.is_in_flight || writes.stamp < fences_[writes.thread]) return;
  log_->Report(ProblemKind::kMissingFence, {by.place, block_, by.thread, writes.place}, [&] {
    return std::string(Name(operation)) + " at offset " + std::to_string(OffsetOf(p)) +
           " follows the write by thread " + std::to_string(writes.thread) + " at " + ToString(writes.place) +
           " without FenceAsyncProxy";
  });
}

bool SharedMemoryChecker::BeginBulkCopy(void* p, size_t bytes, const Accessor& by) {
  char* const to = static_cast<char*>(p);
  for (size_t at = 0; at < bytes; at += kCopyBytes) {
    if (!IsInBounds(to + at, kCopyBytes, Operation::kCopyBulk, by)) return false;
    histories_.ForEach(OffsetOf(to + at), kCopyBytes, [&](const AccessHistory& history) {
      CheckAsyncFence(history, to + at, Operation::kCopyBulk, by);
    });
    if (!CheckWrite(to + at, kCopyBytes, Operation::kCopyBulk, by)) return false;
  }
  histories_.ForEach(OffsetOf(p), bytes, [](AccessHistory& history) { history.is_in_flight = true; });
  return true;
}

void SharedMemoryChecker::EndBulkCopy(void* p, size_t bytes, Place place) {
  const Accessor by = {clock_->copies() * kWarpSize, /*whole_warp=*/true, place};
  histories_.ForEach(OffsetOf(p), bytes, [&](AccessHistory& history) {
    history.writes.Set(by, *clock_);
    history.is_in_flight = false;
  });
}

bool SharedMemoryChecker::BeginProductRead(size_t offset, int group, Operation operation, Place place) {
  const char* const p = data_.get() + offset;
  const int first_warp = group * kWarpsPerGroup;
  const auto by = [&](int warp) { return Accessor{warp * kWarpSize, /*whole_warp=*/true, place}; };
  if (!IsInBounds(p, ProductReads::kChunkBytes, operation, by(first_warp))) return false;
  histories_.ForEach(offset, ProductReads::kChunkBytes, [&](const AccessHistory& history) {
    bool collides = history.is_in_flight;
    for (int i = 0; i < kWarpsPerGroup && !collides; ++i) {
      collides = history.writes.Collides(by(first_warp + i), *clock_);
    }
    if (collides) ReportRace(history, true, p, operation, by(first_warp));
    if (!history.is_initialized) {
      log_->Report(ProblemKind::kUninitializedRead, {place, block_, by(first_warp).thread}, [&] {
        return std::string(Name(operation)) + " at offset " + std::to_string(offset) +
               ", where nobody of this block has written";
      });
    }
    CheckAsyncFence(history, p, operation, by(first_warp));
  });
  product_reads_.Begin(offset, group, place);
  return true;
}

}  // namespace quire::simt
