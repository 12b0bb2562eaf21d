// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_ATTENTION_H_
#define QUIRE_KERNELS_CPU_ATTENTION_H_

#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace quire::cpu {

// Paged attention on the CPU. It plans the step, runs the items on the thread pool and joins the partial results. Its
// scratch memory is kept from call to call. Owned by the executor thread.
class CpuAttention {
 public:
  // Tokens per split: a multiple of the kernels' tile. The value affects the bits of the result.
  static constexpr int kSplitTokens = 512;

  // Both arguments must outlive this object.
  CpuAttention(const KernelTable* kernels, ThreadPool* pool);

  void Run(const AttentionArgs& args);

 private:
  // Running softmax of some query rows: states [rows], values [rows, padded_dim].
  struct Rows {
    SoftmaxState* states;
    float* values;
  };
  struct alignas(64) RoundedQueries {
    BFloat16 values[32];
  };
  // Memory that one thread needs for an item.
  struct Scratch {
    std::vector<const float*> queries;
    std::vector<RoundedQueries> rounded_queries;
    bool queries_are_rounded = false;  // Whether a kernel has rounded the queries of the item.
    std::vector<int32_t> visible_begin, visible_end;
    std::vector<SoftmaxState> states;  // [2 * rows]: first of the item, then of one split.
    std::vector<float> values;         // [2 * rows, padded_dim]
    std::vector<const void*> units;    // Units of the item and the first ones of the next, or of one gathered tile.
    int first_listed = 0;              // Position of the first token of units[0].
    std::vector<char> tile;            // Gathered K and V of one tile.
    const AttentionItem* next_item = nullptr;  // The thread will probably do it after this item. Null: nothing.
    int next_kv_head = 0;
  };

  void RunItem(const AttentionItem& item, int kv_head, Scratch* scratch);
  void ListQueries(const AttentionItem& item, int kv_head, Scratch* scratch);
  void ListUnits(const AttentionItem& item, int kv_head, Scratch* scratch);
  // Appends the units of the item's tokens before `end`.
  void AppendUnits(const AttentionItem& item, int kv_head, int end, std::vector<const void*>* units) const;
  // Joins the splits that other items have computed and the splits of this item.
  void RunSplits(const AttentionItem& item, int kv_head, Rows all, Rows one, Scratch* scratch);
  // Attends all rows of the item to its tokens of one split, starting from the states in `rows`.
  void RunSplit(const AttentionItem& item, int kv_head, int split, Rows rows, Scratch* scratch);
  void AttendInPlace(int begin, int end, AttentionTask* task, const Scratch& scratch);
  void AttendGathered(const AttentionItem& item, int kv_head, int begin, int end, AttentionTask* task,
                      Scratch* scratch);
  // Returns whether the kernels multiply pairs of numbers of this type. Otherwise they widen them to float32.
  bool MultipliesPairs(KvType type) const {
    return type == KvType::kInt8 || (type == KvType::kBFloat16 && kernels_->multiplies_pairs);
  }
  // Layout of a gathered tile: units of 16 tokens in the type that the kernel multiplies.
  KvLayout GatheredLayout() const;
  void GatherToken(const AttentionItem& item, int kv_head, int token, int lane, char* unit) const;
  void RunMerge(const AttentionMerge& merge, int kv_head);
  Rows PartialRows(const PartialPlace& place, int kv_head);
  void ClearRows(int num_rows, Rows rows) const;
  void CopyRows(int num_rows, Rows from, Rows to) const;
  void MergeRows(int num_rows, Rows into, Rows from) const;
  void WriteOutput(int first_row, int num_rows, int kv_head, Rows rows) const;
  int TokenOf(int row) const { return plan_->tokens[row]; }

  const KernelTable* const kernels_;
  ThreadPool* const pool_;
  AttentionPlanner planner_;
  std::vector<Scratch> scratch_;  // One per thread.
  std::vector<SoftmaxState> partial_states_;
  std::vector<float> partial_values_;

  // The current call.
  const AttentionArgs* args_ = nullptr;
  const AttentionPlan* plan_ = nullptr;
  int group_size_ = 0;
  int padded_dim_ = 0;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ATTENTION_H_
