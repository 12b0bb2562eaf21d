// SPDX-License-Identifier: Apache-2.0

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

// Determines when asynchronous copies land in shared memory. A correct kernel has the same results with all three.
enum class CopyLanding : uint8_t {
  kLate,       // When the kernel waits for them. A read that comes too early finds poison or old data.
  kImmediate,  // When they are issued. Data that is overwritten too early is lost.
  kRandom,     // At a random moment in between, in any order.
};

struct LaunchConfig {
  int num_blocks = 1;
  int num_threads = kWarpSize;  // Threads per block: a multiple of 32, at most 1024.
  size_t shared_bytes = 0;      // Dynamic shared memory of a block.
  std::vector<GlobalBuffer> buffers = {};
  uint64_t seed = 1;  // Determines the order of blocks and threads, and random landings.
  CopyLanding landing = CopyLanding::kLate;
  int64_t max_operations_per_block = int64_t{1} << 28;  // More is a runaway, usually a loop that waits for others.
};

// Counts of the operations of all blocks of a launch. Warp instructions count once per warp, others once per thread.
struct LaunchCounters {
  int64_t block_barriers = 0;  // Counted once per block.
  int64_t warp_barriers = 0;
  int64_t shuffles = 0;  // Includes votes.
  int64_t load_matrix = 0;
  int64_t load_matrix_conflicts = 0;  // Additional passes caused by bank conflicts, at most 7 per matrix.
  int64_t mma = 0;
  int64_t group_products = 0;  // Counted once per warp group.
  int64_t async_copies = 0;    // Includes copies that write zeros and read nothing.
  int64_t bulk_copies = 0;
  int64_t atomics = 0;
  int64_t global_bytes_read = 0;
  int64_t global_bytes_written = 0;
  int64_t shared_bytes_read = 0;  // Includes copies and matrices.
  int64_t shared_bytes_written = 0;
  int64_t shared_conflicts = 0;  // Additional passes of plain loads and stores; see bank_conflicts.h.
};

struct LaunchReport {
  std::vector<Problem> problems;  // In the order of discovery, one per kind and place.
  LaunchCounters counters;
  bool is_complete = false;  // Whether every thread has finished.

  bool ok() const { return is_complete && problems.empty(); }
  bool Has(ProblemKind kind) const;
  // Returns one line per problem.
  std::string ToString() const;
};

// Runs `body` once in every thread of the grid, on the calling OS thread. Blocks run one after another in random order,
// the threads of a block in random turns. The same config and body run in the same way. A problem never ends the
// process. If a launch is incomplete, the destructors of objects on its stacks do not run. REQUIRES: not called from a
// kernel.
LaunchReport Launch(const LaunchConfig& config, const std::function<void()>& body);

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_LAUNCH_H_
