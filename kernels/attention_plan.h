#ifndef QUIRE_KERNELS_ATTENTION_PLAN_H_
#define QUIRE_KERNELS_ATTENTION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/batch.h"
#include "kernels/shared_prefix.h"

namespace quire {

// How the attention of one step is cut into independent pieces of work. Plain arithmetic on lengths and block tables,
// shared by the backends.
//
// The tokens of a context are divided into splits of a fixed number of tokens at absolute positions. A query's softmax
// is always computed split by split, each in ascending order, and the splits joined in ascending order, whoever
// computes them. So the cut decides only where the work happens, never a bit of the result.
//
// Example: splits of 512 tokens, one query at position 1100. Its splits are 0, 1 and 2. Alone in the batch it becomes
// three items, which leave partial results, and one merge; among many queries it is one item with three splits.
//
// Example: four sequences of 1100 tokens share the first 600. One item computes split 0 for the queries of all, another
// tokens 512 to 575 of split 1. Then an item for each goes on in split 1, does split 2, and joins the three.

// Where the partial results of one split for some rows are: that of row i, KV head h and head g of its group at
// first + h * head_stride + i * group_size + g.
struct PartialPlace {
  int32_t first = -1;  // -1: nowhere.
  int32_t head_stride = 0;
};

// Work on every KV head. `rows` index AttentionPlan::tokens, each standing for all heads of a group.
struct AttentionItem {
  int32_t sequence;  // The one whose blocks are read.
  int32_t first_row;
  int32_t num_rows;
  // Tokens of the context that its rows attend to as far as they see them: whole splits, but for the last, and the
  // first, which may begin with a tile inside: `resumed` has what is before it, or no row sees that.
  int32_t begin;
  int32_t end;
  PartialPlace resumed;
  // Partial results of the splits before those, to be joined first.
  int32_t first_place;  // In AttentionPlan::places.
  int32_t num_places;
  // Where its own partial result goes: it has tokens of one split only. Nowhere: it writes the output of its rows.
  PartialPlace partial;
};

// Joins the partial results of some rows, in the order of the places, and writes their output.
struct AttentionMerge {
  int32_t first_row;
  int32_t num_rows;
  int32_t first_place;
  int32_t num_places;
};

struct AttentionPlan {
  std::vector<int32_t> tokens;  // Rows of the batch, in the order in which items name them.
  // Items of one phase need what those of earlier phases leave. In a phase the most expensive first.
  std::vector<AttentionItem> items;
  std::vector<int32_t> phase_ends;  // Items [phase_ends[i - 1], phase_ends[i]) are phase i.
  std::vector<AttentionMerge> merges;
  std::vector<PartialPlace> places;
  int num_partials;
};

struct AttentionPlanOptions {
  int num_kv_heads;
  int group_size;    // Query heads per KV head.
  int window;        // Sliding window in tokens; 0: none.
  int block_size;    // Tokens per block.
  int tile_tokens;   // What kernels take at a time; divides split_tokens.
  int split_tokens;  // Tokens per split, fixed for a backend.
  int item_rows;     // Query rows (tokens x group) that one item should not exceed; one token is the least.
  int min_items;     // An item that is more than 1/min_items of all work is cut at its splits.
  // Partial results that a step may leave, about: beyond that nothing is cut and nothing shared is computed apart.
  // (With kernels that do not go from split to split in one item, as those for GPUs, that changes bits.)
  int64_t max_partials = std::numeric_limits<int64_t>::max();
};

// First token that a query at `position` sees.
constexpr int FirstVisible(int position, int window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

// Owned by one thread; keeps its memory from step to step.
class AttentionPlanner {
 public:
  // Plans a step. Tokens that several sequences share are computed by items with the rows of all. The batch is in host
  // memory; its token ids, positions and slots are not read. Deterministic. The plan is valid until the next call.
  const AttentionPlan& Plan(const BatchView& batch, const AttentionPlanOptions& options);

 private:
  struct PlannedItem {
    AttentionItem item;
    int32_t phase;
    int64_t cost;
  };
  // A split that a shared range has computed, wholly or up to its end.
  struct Segment {
    int32_t split;
    int32_t phase;      // Of the items that compute it.
    int32_t first_row;  // Of the rows that `place` counts from.
    PartialPlace place;
  };
  struct OpenRange {
    int32_t end;         // In the order of the sequences.
    int32_t num_tokens;  // Where the range ends, or what was computed before it if it is left out.
    size_t num_segments_before;
    bool is_left_out;  // No room for its partial results: the sequences compute it themselves.
  };

  int NumQueries(int sequence) const { return batch_->query_starts[sequence + 1] - batch_->query_starts[sequence]; }
  PartialPlace AllocatePlace(int num_rows);
  // `place` counted from another row.
  PartialPlace PlaceOf(const Segment& segment, int row) const;
  void AddItem(const AttentionItem& item, int phase);
  // Whether the splits of tokens [begin, end) may leave partial results for so many rows.
  bool HasRoom(int num_rows, int begin, int end) const;

  void PlanSharing();
  void AddSharedRange(const SharedRange& range, int num_rows);
  // The tokens from `begin` on of a sequence whose first row is next_row_, after the open segments.
  void AddSequence(int sequence, int begin);
  void AddRows(AttentionItem whole);
  void CutLargeItems();
  void CutItem(const PlannedItem& whole);
  void SortItems();

  AttentionPlan plan_;
  SharedPrefixFinder prefix_finder_;
  SharedPrefixes prefixes_;
  std::vector<PlannedItem> planned_;
  std::vector<Segment> segments_;  // Those that the sequence in turn builds on.
  std::vector<OpenRange> open_ranges_;
  std::vector<bool> is_planned_;  // [num_sequences]

  // The current call.
  const BatchView* batch_ = nullptr;
  AttentionPlanOptions options_ = {};
  int next_row_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KERNELS_ATTENTION_PLAN_H_
