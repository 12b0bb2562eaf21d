// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_ATTENTION_PLAN_H_
#define QUIRE_KERNELS_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/batch.h"
#include "kernels/shared_prefix.h"

namespace quire {

// Cuts the attention of one step into independent work items. The planner is plain arithmetic on lengths and block
// tables, and all backends share it.
//
// The tokens of a context are divided into splits of a fixed number of tokens at absolute positions. A query's softmax
// is always computed split by split, each split in ascending token order, and the splits are joined in ascending order,
// whoever computes them. Therefore the plan decides only where the work happens and never changes a bit of the result.
//
// Example: splits of 512 tokens and one query at position 1100. The query sees the splits 0, 1 and 2. If it is alone in
// the batch, it becomes three items, which leave partial results, and one merge. Among many queries it becomes one item
// with three splits.
//
// Example: four sequences of 1100 tokens share the first 600. One item computes split 0 for the queries of all four.
// Another item computes the tokens 512 to 575 of split 1 for all four. Then each sequence has an item that finishes
// split 1, computes split 2, and joins the three splits.

// Locates the partial results of one split for some rows. The partial result of row i, KV head h and head g of its
// group is at index first + h * head_stride + i * group_size + g.
struct PartialPlace {
  int32_t first = -1;  // -1 means that there is no partial result.
  int32_t head_stride = 0;
};

// A piece of work, to be done for every KV head. A row is an index into AttentionPlan::tokens and covers all query
// heads of a group.
struct AttentionItem {
  int32_t sequence;  // The sequence whose blocks are read.
  int32_t first_row;
  int32_t num_rows;
  // Range of context tokens. Each row attends to the tokens of the range that it sees. All splits in the range are
  // whole, except the last one and possibly the first one. The first may begin at a tile boundary inside the split.
  // Then `resumed` holds the result of the split's earlier tokens, or no row sees those tokens.
  int32_t begin;
  int32_t end;
  PartialPlace resumed;
  // Partial results of earlier splits, which this item joins first.
  int32_t first_place;  // Index into AttentionPlan::places.
  int32_t num_places;
  // Place for the item's own partial result. Such an item has tokens of one split only, or of several whole splits if
  // AttentionPlanOptions::sizes_parts. Without a place (first is -1), the item writes the output of its rows.
  PartialPlace partial;
};

// Joins partial results of some rows, in the order of their places, and writes the output of these rows.
struct AttentionMerge {
  int32_t first_row;
  int32_t num_rows;
  int32_t first_place;
  int32_t num_places;
};

struct AttentionPlan {
  std::vector<int32_t> tokens;  // Tokens of the batch, in the order in which items number them as rows.
  // Items may depend on the results of earlier phases only. Within a phase the most expensive items come first.
  std::vector<AttentionItem> items;
  std::vector<int32_t> phase_ends;  // Phase i consists of the items [phase_ends[i - 1], phase_ends[i]).
  std::vector<AttentionMerge> merges;
  std::vector<PartialPlace> places;
  int num_partials;
};

struct AttentionPlanOptions {
  int num_kv_heads;
  int group_size;    // Query heads per KV head.
  int window;        // Sliding window in tokens; 0 means none.
  int block_size;    // Tokens per block.
  int tile_tokens;   // Tokens that the kernels process at a time; divides split_tokens.
  int split_tokens;  // Tokens per split; fixed for a backend.
  int item_rows;     // Upper bound on an item's query rows (tokens x group). An item has at least one token.
  int min_items;     // An item that costs more than 1/min_items of all work is cut at its splits.
  // Such an item is cut into the fewest parts, of about equally many splits each, with which no part costs much more
  // than 1/min_items of all work. Otherwise every split becomes a part. The size of the parts depends on the other
  // rows, so this changes bits where the kernels do not process an item split by split (GPU kernels).
  bool sizes_parts = false;
  // Approximate limit on the number of partial results of a step. Beyond the limit no item is cut, and shared tokens
  // are computed by each sequence. This changes bits where the kernels do not process an item split by split (GPU
  // kernels).
  int64_t max_partials = std::numeric_limits<int64_t>::max();
};

// Returns the first token that a query at `position` sees.
constexpr int FirstVisible(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Plans the attention of steps. A planner is owned by one thread and keeps its memory from step to step.
class AttentionPlanner {
 public:
  // Plans a step. Items with the rows of several sequences compute the tokens that these sequences share. The batch is
  // in host memory; its token ids, positions and slots are not read. The plan is deterministic and valid until the next
  // call.
  const AttentionPlan& Plan(const BatchView& batch, const AttentionPlanOptions& options);

 private:
  struct PlannedItem {
    AttentionItem item;
    int32_t phase;
    int64_t cost;
  };
  // A split that a shared range has computed, either completely or up to the end of the range.
  struct Segment {
    int32_t split;
    int32_t phase;      // Phase of the items that compute it.
    int32_t first_row;  // The row at which `place` starts.
    PartialPlace place;
  };
  struct OpenRange {
    int32_t end;  // End of the range in the order of the sequences (exclusive).
    // The tokens before this position are computed. If is_left_out, this is the value before the range.
    int32_t num_tokens;
    size_t num_segments_before;
    bool is_left_out;  // There is no room for its partial results, so the sequences compute it themselves.
  };

  int NumQueries(int sequence) const { return batch_->query_starts[sequence + 1] - batch_->query_starts[sequence]; }
  PartialPlace AllocatePlace(int num_rows);
  // Returns the segment's place for the rows that start at `row`.
  PartialPlace PlaceOf(const Segment& segment, int row) const;
  void AddItem(const AttentionItem& item, int phase);
  int NumSplits(int begin, int end) const;  // The number of splits that contain tokens of [begin, end).
  // Returns whether `num_parts` partial results of `num_rows` rows stay within max_partials.
  bool HasRoom(int num_rows, int num_parts) const;

  void PlanSharing();
  void AddSharedRange(const SharedRange& range, int num_rows);
  // Adds the tokens from `begin` on of a sequence whose first row is next_row_. They continue from the open segments.
  void AddSequence(int sequence, int begin);
  void AddRows(AttentionItem whole);
  void CutLargeItems();
  void CutItem(const PlannedItem& whole, int splits_per_part);
  void SortItems();

  AttentionPlan plan_;
  SharedPrefixFinder prefix_finder_;
  SharedPrefixes prefixes_;
  std::vector<PlannedItem> planned_;
  std::vector<Segment> segments_;  // Segments on which the current sequence builds.
  std::vector<OpenRange> open_ranges_;
  std::vector<bool> is_planned_;  // [num_sequences]

  // The current call.
  const BatchView* batch_ = nullptr;
  AttentionPlanOptions options_ = {};
  int next_row_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ATTENTION_PLAN_H_
