#include "kernels/simt/shared_memory_checker.h"

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
    : bytes_(bytes), data_(AllocateAligned(bytes)), clock_(clock), log_(log), histories_(bytes) {}

bool SharedMemoryChecker::Contains(const void* p) const {
  const auto address = reinterpret_cast<uintptr_t>(p);
  const auto begin = reinterpret_cast<uintptr_t>(data_.get());
  return address >= begin && address < begin + bytes_;
}

void SharedMemoryChecker::Reset(int block) {
  block_ = block;
  std::memset(data_.get(), kPoison, bytes_);
  histories_.Reset();
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

}  // namespace quire::simt
