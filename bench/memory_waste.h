// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_MEMORY_WASTE_H_
#define QUIRE_BENCH_MEMORY_WASTE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "bench/contiguous_block_manager.h"
#include "client/load/request_lengths.h"
#include "scheduler/request.h"

namespace quire {

struct WasteOptions {
  std::optional<Reservation> reservation;  // If set, memory is contiguous; otherwise it has blocks of
  int block_size = 16;
  int pool_tokens = 1 << 17;  // Slots for K and V.
  int max_context_tokens = 2048;
  int max_sequences = 1024;
};

// The uses of the pool's slots as shares of all slots, averaged over simulated time. Their sum is 1.
struct SlotUse {
  double live = 0;       // Slots that hold the K and V of a token.
  double later = 0;      // Slots that their sequence will fill.
  double never = 0;      // Slots that their sequence will never fill.
  double outside = 0;    // Slots that are not allocated.
  double sequences = 0;  // Mean number of sequences that ran at the same time.
  int64_t preemptions = 0;

  double allocated() const { return live + later + never; }
  double live_of_allocated() const { return live / allocated(); }
};

// Serves the requests with the production scheduler and a worker that computes nothing. All requests wait from the
// beginning. The measurement begins when a tenth of them has ended and stops when the last one enters.
SlotUse MeasureWaste(const std::vector<RequestLengths>& requests, const WasteOptions& options);

// A request with `num` samples or beams.
enum class Sharing { kSamples, kBeams };

// Measures the share of blocks that sharing saves: 1 - blocks in use / blocks that the same sequences would hold alone,
// both summed over simulated time. Blocks of 16, no prefix cache.
double MeasureSharing(const std::vector<RequestLengths>& requests, Sharing sharing, int num_sequences);

}  // namespace quire

#endif  // QUIRE_BENCH_MEMORY_WASTE_H_
