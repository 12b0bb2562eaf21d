#ifndef QUIRE_KERNELS_SIMT_LAUNCH_H_
#define QUIRE_KERNELS_SIMT_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/simt/global_memory_checker.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// When asynchronous copies land in shared memory. A right kernel has the same results with all three.
enum class CopyLanding : uint8_t {
  kLate,       // When they are waited for, and not before: what reads too early finds poison or old data.
  kImmediate,  // When they are issued: what is overwritten too early is lost.
  kRandom,     // At a random moment in between, in any order.
};

struct LaunchConfig {
  int num_blocks = 1;
  int num_threads = kWarpSize;  // Of a block: a multiple of 32, at most 1024.
  size_t shared_bytes = 0;      // Dynamic shared memory of a block.
  std::vector<GlobalBuffer> buffers = {};
  uint64_t seed = 1;  // Orders blocks and threads, and random landings.
  CopyLanding landing = CopyLanding::kLate;
  int64_t max_operations_per_block = int64_t{1} << 28;  // More is a runaway: a loop that waits for others, as a rule.
};

// What all blocks of a launch did. Warp instructions count once per warp, the rest once per thread.
struct LaunchCounters {
  int64_t block_barriers = 0;  // Once per block.
  int64_t warp_barriers = 0;
  int64_t shuffles = 0;  // And votes.
  int64_t load_matrix = 0;
  int64_t load_matrix_conflicts = 0;  // Further passes that bank conflicts cost, at most 7 per matrix.
  int64_t mma = 0;
  int64_t async_copies = 0;  // With and without a read.
  int64_t atomics = 0;
  int64_t global_bytes_read = 0;
  int64_t global_bytes_written = 0;
  int64_t shared_bytes_read = 0;  // Copies and matrices included.
  int64_t shared_bytes_written = 0;
  int64_t shared_conflicts = 0;  // Further passes of plain loads and stores; see bank_conflicts.h for how exact.
};

struct LaunchReport {
  std::vector<Problem> problems;  // In the order of discovery, one per kind and place.
  LaunchCounters counters;
  bool is_complete = false;  // Every thread came to its end.

  bool ok() const { return is_complete && problems.empty(); }
  bool Has(ProblemKind kind) const;
  // One line per problem.
  std::string ToString() const;
};

// Runs `body` once in every thread of the grid, on the calling OS thread; blocks one after another in random order, the
// threads of a block in random turns. The same config and body run the same way. A problem never ends the process; the
// destructors of what lies on the stacks of an incomplete launch do not run. REQUIRES: not called from a kernel.
LaunchReport Launch(const LaunchConfig& config, const std::function<void()>& body);

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_LAUNCH_H_
