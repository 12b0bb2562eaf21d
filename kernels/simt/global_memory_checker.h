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
  bool has_read_only_parts = false;  // Of a writable one: LoadReadOnly is right somewhere in it.
  bool is_from_prior_grid = false;  // Not to be touched before WaitForPriorGrid().

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

// What is wrong with accesses to global memory: outside of every buffer, misaligned, writes where the launch only
// reads, accesses before the prior grid is done. Owned by the launch.
class GlobalMemoryChecker {
 public:
  GlobalMemoryChecker(std::vector<GlobalBuffer> buffers, const BarrierClock* clock, ProblemLog* log);

  void BeginBlock(int block);
  // The block has waited for the prior grid.
  void OnPriorGridDone() { prior_grid_done_ = true; }
  void OnFence() { races_.OnFence(); }

  // False if the access must not be made: out of bounds, or a write to what is read-only.
  bool CheckRead(const void* p, size_t bytes, Operation operation, const Accessor& by);
  bool CheckWrite(const void* p, size_t bytes, Operation operation, const Accessor& by);
  bool CheckAtomic(const void* p, size_t bytes, const Accessor& by);

 private:
  // The buffer around the access, or null after a report. Reports misalignment too.
  const GlobalBuffer* Find(const void* p, size_t bytes, Operation operation, const Accessor& by);
  // The same, or null after a report if it is read-only.
  const GlobalBuffer* FindWritable(const void* p, size_t bytes, Operation operation, const Accessor& by);
  void ReportOutOfBounds(const void* p, size_t bytes, Operation operation, const Accessor& by);

  std::vector<GlobalBuffer> buffers_;  // Ascending addresses.
  size_t last_found_ = 0;              // Accesses come in runs.
  int block_ = 0;
  bool prior_grid_done_ = false;
  ProblemLog* log_;
  GlobalRaceChecker races_;
};

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_GLOBAL_MEMORY_CHECKER_H_
