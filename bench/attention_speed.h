// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_ATTENTION_SPEED_H_
#define QUIRE_BENCH_ATTENTION_SPEED_H_

#include "absl/status/statusor.h"
#include "bench/memory_reader.h"
#include "client/load/samples.h"
#include "kernels/backend.h"

namespace quire {

// The attention of a model. It must have enough layers that K and V exceed the caches.
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
  int num_queries;     // New tokens of each sequence.
  int context_tokens;  // Tokens of each sequence, including the new ones.
  int shared_tokens;   // Number of first tokens that the sequences share.
};

struct AttentionSpeed {
  double kv_bytes = 0;  // Bytes of K and V in all layers, with their scales. Shared ones are counted once.
  double flop = 0;      // Two products of every query head with every token that it sees, in all layers.
  // Seconds for all layers, with the blocks in random order and in consecutive order. With one thread this is CPU time.
  Samples scattered;
  Samples contiguous;
  // Values of the same rounds: the bandwidth of a plain read (GB/s); the time in which this read would have read
  // kv_bytes, divided by the scattered time; and the scattered time divided by the contiguous time.
  Samples bandwidth;
  Samples memory_share;
  Samples scatter_ratio;
};

// Measures the attention of a step in every layer `rounds` times, each time paired with a plain read of memory.
// REQUIRES: the backend and the reader have `num_threads` threads; 0 means one per core. K and V are bfloat16 or int8.
// RESOURCE_EXHAUSTED when there is not enough memory for K and V.
absl::StatusOr<AttentionSpeed> MeasureAttention(Backend* backend, MemoryReader* memory, int num_threads,
                                                const AttentionModel& model, KvType kv_type, const AttentionLoad& load,
                                                int block_size, int num_rounds);

}  // namespace quire

#endif  // QUIRE_BENCH_ATTENTION_SPEED_H_
