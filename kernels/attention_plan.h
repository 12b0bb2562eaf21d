#ifndef QUIRE_KERNELS_ATTENTION_PLAN_H_
#define QUIRE_KERNELS_ATTENTION_PLAN_H_

#include <cstdint>
#include <vector>

namespace quire {

// How the attention of one step is cut into independent pieces of work. Plain arithmetic on lengths, shared by the
// backends.
//
// The tokens of a context are divided into splits of a fixed number of tokens at absolute positions. A query's softmax
// is always computed split by split and the splits joined in ascending order, whoever computes them. So the cut decides
// only where the work happens, never a bit of the result.
//
// Example: splits of 512 tokens, one query at position 1100. Its splits are 0, 1 and 2. Alone in the batch it becomes
// three items, which leave partial results, and one merge; among many queries it is one item with three splits.

struct AttentionItem {
  int32_t sequence;
  int32_t kv_head;
  int32_t first_token;  // Rows of the batch [first_token, first_token + num_tokens), each with all heads of the group.
  int32_t num_tokens;
  int32_t first_split;  // Splits [first_split, first_split + num_splits) of the sequence's context.
  int32_t num_splits;
  // Where the partial result of query row (token i, head g of the group) goes: first_partial + i * group_size + g.
  // -1: the item has all splits of its rows and writes the output itself.
  int32_t first_partial;
};

// Joins the partial results of the rows of some items: those of split s (0 .. num_splits - 1) start at
// first_partial + s * num_tokens * group_size.
struct AttentionMerge {
  int32_t kv_head;
  int32_t first_token;
  int32_t num_tokens;
  int32_t num_splits;
  int32_t first_partial;
};

struct AttentionPlan {
  std::vector<AttentionItem> items;  // The most expensive first.
  std::vector<AttentionMerge> merges;
  int num_partials;
};

struct AttentionPlanOptions {
  int num_kv_heads;
  int group_size;    // Query heads per KV head.
  int window;        // Sliding window in tokens; 0: none.
  int split_tokens;  // Tokens per split, fixed for a backend.
  int item_rows;     // Query rows (tokens x group) that one item should not exceed; one token is the least.
  int min_items;     // An item that is more than 1/min_items of all work is cut at its splits.
};

// Which splits a query of some position sees.
struct SplitRange {
  int begin;
  int end;
};

// First token that a query at `position` sees.
constexpr int FirstVisible(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

constexpr SplitRange VisibleSplits(int first_position, int last_position, const AttentionPlanOptions& options) {
  return {FirstVisible(first_position, options.window) / options.split_tokens,
          last_position / options.split_tokens + 1};
}

// Plans the step of a batch (kernels/batch.h): query_starts has num_sequences + 1 entries, context_lens num_sequences,
// in host memory. Overwrites *plan, keeping its memory. Deterministic.
void PlanAttention(const int32_t* query_starts, const int32_t* context_lens, int num_sequences,
                   const AttentionPlanOptions& options, AttentionPlan* plan);

}  // namespace quire

#endif  // QUIRE_KERNELS_ATTENTION_PLAN_H_
