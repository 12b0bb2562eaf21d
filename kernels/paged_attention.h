// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_PAGED_ATTENTION_H_
#define QUIRE_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"

// Attention over a paged cache as a plain function. It serves programs that have their own cache in the order [block,
// token, KV head, dimension]. The GPU function is in kernels/cuda/paged_attention.h and the Python module in
// kernels/python. Quire itself calls Backend::Attention, whose pool has a different order. Therefore these functions
// first copy the blocks that are used into that order.

namespace quire {

// One decode step. Each sequence has one query, which is the last token of its context and sees the whole context.
// Query head h reads KV head h * num_kv_heads / num_heads.
//   out[s, h] = softmax(scale * query[s, h] K^T) V over the first context_lens[s] tokens of sequence s
// The output is zero for an empty context. Token t of sequence s is token t % block_size of block block_tables[s, t /
// block_size]. Strides are in elements, and the last dimension of every array is contiguous. Table entries and tokens
// beyond a context are never read.
struct PagedAttentionArgs {
  const void* query;         // [num_seqs, num_heads, head_dim]
  int64_t query_strides[2];  // Distances from one sequence and from one head to the next.
  const void* key_cache;     // [num_blocks, block_size, num_kv_heads, head_dim]
  int64_t key_strides[3];    // Distances from one block, token and head to the next.
  const void* value_cache;   // Same shape as key_cache.
  int64_t value_strides[3];
  const int32_t* block_tables;  // [num_seqs, max_blocks]
  int64_t block_tables_stride;  // Distance from one sequence to the next.
  const int32_t* context_lens;  // [num_seqs]
  void* out;                    // [num_seqs, num_heads, head_dim], contiguous; overlaps no other array.
  DataType type;                // Element type of query, caches and out.
  int64_t num_seqs;
  int64_t num_heads;  // A multiple of num_kv_heads.
  int64_t head_dim;   // Even, at most kMaxHeadDim.
  int64_t num_blocks;
  int64_t block_size;  // 1, 2, 4, 8 or a multiple of 16.
  int64_t num_kv_heads;
  int64_t max_blocks;
  int64_t max_context_len;  // Upper bound on context_lens.
  double scale;             // Usually 1 / sqrt(head_dim); on a GPU it must be positive.
};

struct PagedAttentionStatus {
  enum Code {
    kOk,
    kInvalidArgument,  // `message` names the argument, its value and the limit, as in "context_lens[2] is 70, ...".
    kUnavailable,      // There is not enough memory, or no working device.
  };
  Code code = kOk;
  std::string message;

  bool ok() const { return code == kOk; }
  static PagedAttentionStatus Invalid(std::string message) { return {kInvalidArgument, std::move(message)}; }
  static PagedAttentionStatus Unavailable(std::string message) { return {kUnavailable, std::move(message)}; }
};

// Runs on the CPU with all arrays in host memory. It uses at most one thread per core, and fewer for little work. The
// result does not depend on the number of threads, on block_size, on which blocks hold the tokens, or on the other
// sequences. Thread-safe. `out` is unchanged unless the status is OK.
PagedAttentionStatus paged_attention_cpu_forward(const PagedAttentionArgs& args);

// The preparation that all forward functions share: the sequences with a non-empty context and the blocks of their
// contexts.
struct PagedAttentionStep {
  struct UsedBlock {
    uint32_t block;      // Block in the caller's cache. Its index in used_blocks is the block number in the copy.
    int32_t num_tokens;  // Number of its tokens that at least one sequence sees.
  };
  std::vector<int32_t> rows;       // [num_active] indices of the active sequences; the arrays below are in this order.
  std::vector<int32_t> positions;  // [num_seqs] query positions of all sequences, -1 for an empty context.
  std::vector<int32_t> query_starts = {0}, context_lens, table_starts = {0};  // Same meaning as in BatchView.
  std::vector<uint32_t> block_tables;                                         // Block numbers in the copy.
  std::vector<UsedBlock> used_blocks;  // In the order of their first occurrence in the tables.
};

// Checks everything except the strides, and fills `step`. `block_tables` and `context_lens` are the arrays of `args` in
// host memory; the tables are contiguous. After an error `step` is undefined.
PagedAttentionStatus PlanPagedAttention(const PagedAttentionArgs& args, const int32_t* block_tables,
                                        const int32_t* context_lens, PagedAttentionStep* step);

// Makes the checks that read no array.
PagedAttentionStatus CheckPagedAttentionShape(const PagedAttentionArgs& args);

}  // namespace quire

#endif  // QUIRE_KERNELS_PAGED_ATTENTION_H_
