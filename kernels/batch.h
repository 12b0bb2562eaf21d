#ifndef QUIRE_KERNELS_BATCH_H_
#define QUIRE_KERNELS_BATCH_H_

#include <cstdint>

namespace quire {

// The tokens of one step in flat arrays, sequence after sequence. The arrays are in host memory, or where
// Backend::PrepareBatch has put them; it may leave out those that no operation reads (null).
//
// The new tokens of a sequence are consecutive and end its context: row i of the n rows of a sequence has position
// context_len - n + i. A decode is one row, a prefill chunk many.
struct BatchView {
  int num_tokens;
  int num_sequences;
  // [num_tokens]. Below 0: the token that was drawn last for place -1 - id (SamplingRow::drawn_place).
  const int32_t* token_ids;
  const int32_t* positions;      // [num_tokens]
  const int64_t* slots;          // [num_tokens], slot = block * block_size + offset
  const int32_t* query_starts;   // [num_sequences + 1], first row of each sequence in the token arrays
  const int32_t* context_lens;   // [num_sequences], tokens in the cache after this step's are stored
  const int32_t* table_starts;   // [num_sequences + 1], first entry of each block table in block_tables
  const uint32_t* block_tables;  // [table_starts[num_sequences]]
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BATCH_H_
