// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_SHARED_BARRIERS_H_
#define QUIRE_KERNELS_SIMT_SHARED_BARRIERS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/simt/access_history.h"
#include "kernels/simt/problem.h"

namespace quire::simt {

// A copy in flight from global to shared memory, for which a barrier in shared memory waits.
struct BulkCopy {
  char* to;
  const char* from;
  size_t bytes;
  Place place;
};

// A barrier in shared memory.
struct SharedBarrier {
  uint32_t count = 0;   // Arrivals of a phase.
  int64_t pending = 0;  // Arrivals that are missing in this phase.
  int64_t bytes = 0;    // Bytes that are announced and have not landed; negative when they landed first.
  uint32_t phase = 0;   // Number of phases that have ended.
  Knowledge published;  // By the arrivals and copies of all phases, also of this one.
  Knowledge of_ended;   // The same without this phase.
  std::vector<BulkCopy> in_flight;
  std::vector<int> waiting;  // Threads.

  // The phase with the parity of the current one has not ended.
  bool HasEnded(uint32_t parity) const { return (phase & 1) != (parity & 1); }
  // Returns whether a phase has ended.
  bool EndPhaseIfComplete() {
    if (pending != 0 || bytes != 0) return false;
    ++phase;
    pending = count;
    of_ended = published;
    return true;
  }
};

// The barriers of a block by their offset in shared memory.
using SharedBarriers = std::map<size_t, SharedBarrier>;

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_SHARED_BARRIERS_H_
