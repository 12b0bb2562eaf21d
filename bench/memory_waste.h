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
  std::optional<Reservation> reservation;  // Contiguous memory; otherwise blocks of
  int block_size = 16;
  int pool_tokens = 1 << 17;  // Slots of K and V.
  int max_context_tokens = 2048;
  int max_sequences = 1024;
};

// What the slots of the pool were doing, as shares of all of them, averaged over simulated time. They make 1 together.
struct SlotUse {
  double live = 0;       // Hold the K and V of a token.
  double later = 0;      // Allocated to a sequence which will fill them.
  double never = 0;      // Allocated to one which will not.
  double outside = 0;    // Allocated to nobody.
  double sequences = 0;  // That ran at the same time, on average.
  int64_t preemptions = 0;

  double allocated() const { return live + later + never; }
  double live_of_allocated() const { return live / allocated(); }
};

// Serves the requests with the production scheduler and a worker that computes nothing, all of them wanting in from the
// beginning. Counts from when the first tenth has ended until the last one enters.
SlotUse MeasureWaste(const std::vector<RequestLengths>& requests, const WasteOptions& options);

// One request as samples or beams; `num` sequences of it.
enum class Sharing { kSamples, kBeams };

// The share of blocks that sharing saves: 1 - blocks in use / blocks that the same sequences would hold alone, both
// summed over simulated time. Blocks of 16, no prefix cache.
double MeasureSharing(const std::vector<RequestLengths>& requests, Sharing sharing, int num_sequences);

}  // namespace quire

#endif  // QUIRE_BENCH_MEMORY_WASTE_H_
