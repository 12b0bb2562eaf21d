#ifndef QUIRE_KERNELS_PAGED_ATTENTION_H_
#define QUIRE_KERNELS_PAGED_ATTENTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/types.h"

// Attention over a paged cache as a plain function, for programs that have a cache of their own in the order [block,
// token, KV head, dimension]. The function for GPUs is in kernels/cuda/paged_attention.h, the Python module in
// kernels/python. Quire itself calls Backend::Attention, whose pool has another order: these functions copy the blocks
// that are used into that order first.

namespace quire {

// One decode step: a query per sequence, which sees its whole context and is the last token of it. Query head h reads
// KV head h * num_kv_heads / num_heads.
//   out[s, h] = softmax(scale * query[s, h] K^T) V over the first context_lens[s] tokens of sequence s, zeros for none.
// Token t of sequence s is token t % block_size of block block_tables[s, t / block_size]. Strides are in elements; the
// last dimension of every array is contiguous. Table entries and tokens behind a context are never read.
struct PagedAttentionArgs {
  const void* query;         // [num_seqs, num_heads, head_dim]
  int64_t query_strides[2];  // From one sequence to the next, from one head to the next.
  const void* key_cache;     // [num_blocks, block_size, num_kv_heads, head_dim]
  int64_t key_strides[3];    // From one block, token and head to the next.
  const void* value_cache;   // Of the same shape.
  int64_t value_strides[3];
  const int32_t* block_tables;  // [num_seqs, max_blocks]
  int64_t block_tables_stride;  // From one sequence to the next.
  const int32_t* context_lens;  // [num_seqs]
  void* out;                    // [num_seqs, num_heads, head_dim], without gaps. Overlaps no other array.
  DataType type;                // Of query, caches and out.
  int64_t num_seqs;
  int64_t num_heads;  // A multiple of num_kv_heads.
  int64_t head_dim;   // Even, at most kMaxHeadDim.
  int64_t num_blocks;
  int64_t block_size;  // 1, 2, 4, 8 or a multiple of 16.
  int64_t num_kv_heads;
  int64_t max_blocks;
  int64_t max_context_len;  // No context is longer.
  double scale;             // 1 / sqrt(head_dim) as a rule.
};

struct PagedAttentionStatus {
  enum Code {
    kOk,
    kInvalidArgument,  // `message` names the argument, its value and the limit, as in "context_lens[2] is 70, ...".
    kUnavailable,      // No memory, or no device that works.
  };
  Code code = kOk;
  std::string message;

  bool ok() const { return code == kOk; }
  static PagedAttentionStatus Invalid(std::string message) { return {kInvalidArgument, std::move(message)}; }
  static PagedAttentionStatus Unavailable(std::string message) { return {kUnavailable, std::move(message)}; }
};

// On the CPU, all arrays in host memory. Uses at most a thread per core, and less for little work; the result does not
// depend on that, nor on block_size, on which blocks hold the tokens or on the other sequences. Thread-safe. `out` is
// untouched unless the status is OK.
PagedAttentionStatus paged_attention_cpu_forward(const PagedAttentionArgs& args);

// What the forward functions have in common: the sequences that have a context, and the blocks in it.
struct PagedAttentionStep {
  struct UsedBlock {
    uint32_t block;      // In the caller's cache; its index in used_blocks is the block of the copy.
    int32_t num_tokens;  // That some sequence sees.
  };
  std::vector<int32_t> rows;       // [num_active] Their indices; the arrays below are in this order.
  std::vector<int32_t> positions;  // [num_seqs] Of the queries of all sequences, -1 where there is no context.
  std::vector<int32_t> query_starts = {0}, context_lens, table_starts = {0};  // As in BatchView.
  std::vector<uint32_t> block_tables;                                         // Blocks of the copy.
  std::vector<UsedBlock> used_blocks;  // In the order in which tables name them first.
};

// Checks everything but the strides, and fills `step`. `block_tables` and `context_lens` are those of args in host
// memory; tables without gaps. On an error `step` is undefined.
PagedAttentionStatus PlanPagedAttention(const PagedAttentionArgs& args, const int32_t* block_tables,
                                        const int32_t* context_lens, PagedAttentionStep* step);

// The checks that need no array.
PagedAttentionStatus CheckPagedAttentionShape(const PagedAttentionArgs& args);

}  // namespace quire

#endif  // QUIRE_KERNELS_PAGED_ATTENTION_H_
