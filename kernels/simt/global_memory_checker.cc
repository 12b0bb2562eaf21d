// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/global_memory_checker.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace quire::simt {
namespace {

uintptr_t Address(const void* p) {
  return reinterpret_cast<uintptr_t>(p);
}

bool Contains(const GlobalBuffer& buffer, const void* p, size_t bytes) {
  const size_t offset = Address(p) - Address(buffer.data);  // The offset is huge for addresses before the buffer.
  return offset <= buffer.bytes && bytes <= buffer.bytes - offset;
}

std::string Describe(const void* p, size_t bytes, Operation operation, const GlobalBuffer& buffer) {
  const auto offset = static_cast<int64_t>(Address(p) - Address(buffer.data));
  return std::string(Name(operation)) + " of " + std::to_string(bytes) + " bytes at byte " + std::to_string(offset) +
         " of \"" + buffer.name + "\" (" + std::to_string(buffer.bytes) + " bytes)";
}

}  // namespace

GlobalBuffer GlobalBuffer::FromPriorGrid() const {
  GlobalBuffer buffer = *this;
  buffer.is_from_prior_grid = true;
  return buffer;
}

GlobalMemoryChecker::GlobalMemoryChecker(std::vector<GlobalBuffer> buffers, const BarrierClock* clock, ProblemLog* log)
    : buffers_(std::move(buffers)), log_(log), races_(clock, log) {
  std::sort(buffers_.begin(), buffers_.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
}

void GlobalMemoryChecker::BeginBlock(int block) {
  block_ = block;
  prior_grid_done_ = false;
  races_.BeginBlock(block);
}

void GlobalMemoryChecker::ReportOutOfBounds(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  log_->Report(ProblemKind::kGlobalOutOfBounds, {by.place, block_, by.thread}, [&] {
    // Usually the nearest buffer is the one that was meant.
    const auto distance = [&](const GlobalBuffer& buffer) {
      const uintptr_t begin = Address(buffer.data);
      return Address(p) < begin ? begin - Address(p) : Address(p) - std::min(Address(p), begin + buffer.bytes);
    };
    const auto nearest = std::min_element(buffers_.begin(), buffers_.end(),
                                          [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    if (nearest == buffers_.end()) return std::string(Name(operation)) + ", and the launch has no buffers";
    return Describe(p, bytes, operation, *nearest);
  });
}

const GlobalBuffer* GlobalMemoryChecker::Find(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  if (last_found_ >= buffers_.size() || !Contains(buffers_[last_found_], p, bytes)) {
    const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                    [&](const GlobalBuffer& buffer) { return Contains(buffer, p, bytes); });
    if (found == buffers_.end()) {
      ReportOutOfBounds(p, bytes, operation, by);
      return nullptr;
    }
    last_found_ = found - buffers_.begin();
  }
  const GlobalBuffer& buffer = buffers_[last_found_];
  if (Address(p) % bytes != 0) {
    log_->Report(ProblemKind::kMisaligned, {by.place, block_, by.thread},
                 [&] { return Describe(p, bytes, operation, buffer); });
  }
  if (buffer.is_from_prior_grid && !prior_grid_done_) {
    log_->Report(ProblemKind::kBeforePriorGrid, {by.place, block_, by.thread},
                 [&] { return Describe(p, bytes, operation, buffer); });
  }
  return &buffer;
}

bool GlobalMemoryChecker::CheckRead(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  const GlobalBuffer* const buffer = Find(p, bytes, operation, by);
  if (buffer == nullptr) return false;
  if (operation == Operation::kLoadReadOnly && buffer->is_writable && !buffer->has_read_only_parts) {
    log_->Report(ProblemKind::kReadOnlyViolation, {by.place, block_, by.thread},
                 [&] { return Describe(p, bytes, operation, *buffer) + ", which the launch may write"; });
  }
  if (buffer->is_writable) races_.OnRead(p, bytes, operation, by);
  return true;
}

const GlobalBuffer* GlobalMemoryChecker::FindWritable(const void* p, size_t bytes, Operation operation,
                                                      const Accessor& by) {
  const GlobalBuffer* const buffer = Find(p, bytes, operation, by);
  if (buffer == nullptr || buffer->is_writable) return buffer;
  log_->Report(ProblemKind::kReadOnlyViolation, {by.place, block_, by.thread},
               [&] { return Describe(p, bytes, operation, *buffer); });
  return nullptr;
}

bool GlobalMemoryChecker::CheckWrite(const void* p, size_t bytes, Operation operation, const Accessor& by) {
  if (FindWritable(p, bytes, operation, by) == nullptr) return false;
  races_.OnWrite(p, bytes, operation, by);
  return true;
}

bool GlobalMemoryChecker::CheckAtomic(const void* p, size_t bytes, const Accessor& by) {
  if (FindWritable(p, bytes, Operation::kAtomic, by) == nullptr) return false;
  races_.OnAtomic(p, bytes, by);
  return true;
}

}  // namespace quire::simt
