#ifndef QUIRE_BENCH_ATTENTION_SPEED_H_
#define QUIRE_BENCH_ATTENTION_SPEED_H_

#include "absl/status/statusor.h"
#include "bench/memory_reader.h"
#include "client/load/samples.h"
#include "kernels/backend.h"

namespace quire {

// The attention of a model: K and V are bfloat16. Enough layers that their K and V stream from memory.
struct AttentionModel {
  const char* name;
  int num_layers;
  int num_heads;
  int num_kv_heads;
  int head_dim;
};

// The sequences of a step.
struct AttentionLoad {
  int num_sequences;
  int num_queries;     // New tokens of each.
  int context_tokens;  // Of each, the new ones included.
  int shared_tokens;   // Of these, the first ones that all have in common.
};

struct AttentionSpeed {
  double kv_bytes = 0;  // Of all layers, shared ones counted once.
  double flop = 0;      // Of all layers: two products of every query head with every token that it sees.
  // Of all layers, in seconds (of CPU time with one thread), with blocks in memory in random order and
  // one after the other.
  Samples scattered;
  Samples contiguous;
  // Of the same rounds: what the memory gave to a plain reader (GB/s), the time that it would take for kv_bytes in
  // parts of the scattered time, and scattered over contiguous time.
  Samples bandwidth;
  Samples memory_share;
  Samples scatter_ratio;
};

// Measures the attention of a step in every layer, paired with a reading of memory, so many times. REQUIRES: the
// backend and the reader have so many threads; 0: one per core. RESOURCE_EXHAUSTED when there
// is not enough memory for K and V.
absl::StatusOr<AttentionSpeed> MeasureAttention(Backend* backend, MemoryReader* memory, int num_threads,
                                                const AttentionModel& model, const AttentionLoad& load, int block_size,
                                                int num_rounds);

}  // namespace quire

#endif  // QUIRE_BENCH_ATTENTION_SPEED_H_
