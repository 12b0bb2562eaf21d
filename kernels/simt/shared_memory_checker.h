#ifndef QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_
#define QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_

#include <cstddef>
#include <memory>

#include "kernels/simt/access_history.h"
#include "kernels/simt/problem.h"

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

 private:
  struct Free {
    void operator()(char* p) const;
  };

  bool IsInBounds(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void ReportRace(const AccessHistory& history, bool with_write, const void* p, Operation operation,
                  const Accessor& by);

  size_t bytes_;
  std::unique_ptr<char, Free> data_;
  int block_ = 0;
  const BarrierClock* clock_;
  ProblemLog* log_;
  HistoryMap<AccessHistory> histories_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_SHARED_MEMORY_CHECKER_H_
