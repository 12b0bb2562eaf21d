// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_
#define QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/simt/access_history.h"
#include "kernels/simt/problem.h"
#include "kernels/simt/product_reads.h"

namespace quire::simt {

// The shared memory of the running block, and the checks of its accesses: bounds, alignment, reads of bytes that were
// never written, and races. Owned by the launch.
class SharedMemoryChecker {
 public:
  static constexpr size_t kAlignment = 1024;

  SharedMemoryChecker(size_t bytes, const BarrierClock* clock, ProblemLog* log);

  char* data() { return data_.get(); }
  bool Contains(const void* p) const;
  size_t OffsetOf(const void* p) const { return static_cast<const char*>(p) - data_.get(); }

  // Starts a new block: all bytes become poison (0xff, a NaN in every type) and have no accesses.
  void Reset(int block);

  // These check an access. They return false if it must not be made because it is out of bounds. Every other problem is
  // only reported.
  bool CheckRead(const void* p, size_t bytes, Operation operation, const Accessor& by);
  bool CheckWrite(void* p, size_t bytes, Operation operation, const Accessor& by);
  // Atomics collide with plain accesses but not with each other.
  bool CheckAtomic(void* p, size_t bytes, const Accessor& by);

  // Marks 16 bytes as the target of an asynchronous copy. No thread may access them before the copy ends.
  bool BeginCopy(void* p, const Accessor& by);
  void EndCopy(void* p, const Accessor& by);

  // Bulk copies and products access memory through the asynchronous proxy. A thread orders its own plain accesses
  // before them with FenceAsyncProxy.
  void OnAsyncFence(int thread) { fences_[thread] = clock_->now(); }
  // Marks memory as the target of a bulk copy.
  bool BeginBulkCopy(void* p, size_t bytes, const Accessor& by);
  void EndBulkCopy(void* p, size_t bytes, Place place);
  // A product of a warp group reads the 16 bytes at this offset until EndProductRead.
  bool BeginProductRead(size_t offset, int group, Operation operation, Place place);
  void EndProductRead(size_t offset, int group) { product_reads_.End(offset, group); }

 private:
  struct Free {
    void operator()(char* p) const;
  };

  bool IsInBounds(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void ReportRace(const AccessHistory& history, bool with_write, const void* p, Operation operation,
                  const Accessor& by);
  // Reports a write that collides with a read by a product.
  void CheckProductReads(const void* p, size_t bytes, Operation operation, const Accessor& by);
  // Reports plain writes of the granule that no fence orders before an asynchronous access.
  void CheckAsyncFence(const AccessHistory& history, const void* p, Operation operation, const Accessor& by);

  size_t bytes_;
  std::unique_ptr<char, Free> data_;
  int block_ = 0;
  const BarrierClock* clock_;
  ProblemLog* log_;
  HistoryMap<AccessHistory> histories_;
  ProductReads product_reads_;
  std::vector<uint32_t> fences_;  // [threads]: the count of the clock after the thread's last FenceAsyncProxy.
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_
