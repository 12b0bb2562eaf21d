// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_GLOBAL_MEMORY_CHECKER_H_
#define QUIRE_KERNELS_SIMT_GLOBAL_MEMORY_CHECKER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/simt/access_history.h"
#include "kernels/simt/global_race_checker.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// A piece of global memory that a launch may touch. Pieces of one launch do not overlap.
struct GlobalBuffer {
  std::string name;
  char* data = nullptr;
  size_t bytes = 0;
  bool is_writable = false;
  bool has_read_only_parts = false;  // Whether LoadReadOnly is allowed in some parts of a writable buffer.
  bool is_from_prior_grid = false;   // Accessible only after WaitForPriorGrid().

  GlobalBuffer FromPriorGrid() const;
};

template <typename T>
GlobalBuffer ReadOnlyBuffer(std::string name, const T* data, size_t count) {
  return {.name = std::move(name),
          .data = const_cast<char*>(reinterpret_cast<const char*>(data)),
          .bytes = count * sizeof(T)};
}

template <typename T>
GlobalBuffer WritableBuffer(std::string name, T* data, size_t count) {
  return {
      .name = std::move(name), .data = reinterpret_cast<char*>(data), .bytes = count * sizeof(T), .is_writable = true};
}

// Checks accesses to global memory. It finds accesses outside of every buffer, misaligned accesses, writes to buffers
// that the launch only reads, LoadReadOnly of buffers that the launch may write, accesses before the prior grid is
// done, and races (with a GlobalRaceChecker). Owned by the launch.
class GlobalMemoryChecker {
 public:
  GlobalMemoryChecker(std::vector<GlobalBuffer> buffers, const BarrierClock* clock, ProblemLog* log);

  void BeginBlock(int block);
  // Notes that the block has waited for the prior grid.
  void OnPriorGridDone() { prior_grid_done_ = true; }
  void OnFence() { races_.OnFence(); }

  // These return false if the access must not be made, because it is out of bounds or writes to a read-only buffer.
  bool CheckRead(const void* p, size_t bytes, Operation operation, const Accessor& by);
  bool CheckWrite(const void* p, size_t bytes, Operation operation, const Accessor& by);
  bool CheckAtomic(const void* p, size_t bytes, const Accessor& by);

 private:
  // Returns the buffer around the access, or reports a problem and returns null. Also reports misalignment.
  const GlobalBuffer* Find(const void* p, size_t bytes, Operation operation, const Accessor& by);
  // Like Find, but also reports a problem and returns null if the buffer is read-only.
  const GlobalBuffer* FindWritable(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void ReportOutOfBounds(const void* p, size_t bytes, Operation operation, const Accessor& by);

  std::vector<GlobalBuffer> buffers_;  // Sorted by address.
  size_t last_found_ = 0;              // Index of the last hit, because consecutive accesses often use the same buffer.
  int block_ = 0;
  bool prior_grid_done_ = false;
  ProblemLog* log_;
  GlobalRaceChecker races_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_GLOBAL_MEMORY_CHECKER_H_
