// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_BATCH_H_
#define QUIRE_KERNELS_BATCH_H_

#include <cstdint>

namespace quire {

// The tokens of one step in flat arrays, sequence after sequence. The arrays are in host memory, or in the memory that
// Backend::PrepareBatch has chosen. PrepareBatch may leave out arrays that no operation reads; these are null.
//
// A model whose layers keep K and V in different blocks has several views of a step, one for each of the columns of its
// block tables. They differ in slots, table_starts and block_tables.
//
// The new tokens of a sequence are consecutive and end its context. Row i of the n rows of a sequence has the position
// context_len - n + i. A decode step has one row per sequence, a prefill chunk has many.
struct BatchView {
  int num_tokens;
  int num_sequences;
  // [num_tokens]. A negative id means the token that was drawn last for place -1 - id (SamplingRow::drawn_place).
  const int32_t* token_ids;
  const int32_t* positions;     // [num_tokens]
  const int64_t* slots;         // [num_tokens], slot = block * block_size + offset
  const int32_t* query_starts;  // [num_sequences + 1], first row of each sequence in the token arrays; the last entry
                                // is num_tokens
  const int32_t* context_lens;  // [num_sequences], tokens in the cache after this step has stored its own
  // [num_sequences + 1]. Entry i of the block table of sequence s is block_tables[table_starts[s] + i]. The table of a
  // sequence may lack its first entries if no operation looks at them (AttentionArgs::window). So a start may be below
  // the end of the table before, and even below 0. The last entry is the length of block_tables.
  const int32_t* table_starts;
  const uint32_t* block_tables;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_BATCH_H_
