#ifndef QUIRE_KERNELS_CPU_ATTENTION_H_
#define QUIRE_KERNELS_CPU_ATTENTION_H_

#include <vector>

#include "kernels/attention.h"
#include "kernels/attention_plan.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace quire::cpu {

// Paged attention on the CPU: plans the step, runs the items on the pool, joins partial results. Keeps its scratch
// memory from call to call. Owned by the executor thread.
class CpuAttention {
 public:
  // Tokens per split. A multiple of the kernels' tile; part of the numerics.
  static constexpr int kSplitTokens = 512;

  // Both must outlive this.
  CpuAttention(const KernelTable* kernels, ThreadPool* pool);

  void Run(const AttentionArgs& args);

 private:
  // Running softmax of some query rows: states [rows], values [rows, padded_dim].
  struct Rows {
    SoftmaxState* states;
    float* values;
  };
  // What one thread needs for an item.
  struct Scratch {
    std::vector<const float*> queries;
    std::vector<int32_t> visible_begin, visible_end;
    std::vector<SoftmaxState> states;  // [2 * rows]: of the item, of a split.
    std::vector<float> values;         // [2 * rows, padded_dim]
    std::vector<const void*> units;    // Of the item, or of one gathered tile.
    int first_listed = 0;              // Position of the first token of units[0].
    std::vector<char> tile;            // Gathered K and V of one tile.
  };

  void RunItem(const AttentionItem& item, Scratch* scratch);
  void ListUnits(const AttentionItem& item, Scratch* scratch);
  // Attends all rows of the item to one split, from an empty state.
  void RunSplit(const AttentionItem& item, int split, Rows rows, Scratch* scratch);
  void AttendInPlace(int begin, int end, AttentionTask* task, const Scratch& scratch);
  void AttendGathered(const AttentionItem& item, int begin, int end, AttentionTask* task, Scratch* scratch);
  // How a gathered tile is laid out: units of 16 tokens in the type that the kernel multiplies.
  KvLayout GatheredLayout() const;
  void GatherToken(const AttentionItem& item, int token, int lane, char* unit) const;
  void RunMerge(const AttentionMerge& merge);
  void MergeRows(int num_rows, Rows into, Rows from);
  void WriteOutput(int first_token, int num_tokens, int kv_head, Rows rows);

  const KernelTable* const kernels_;
  ThreadPool* const pool_;
  AttentionPlan plan_;
  std::vector<Scratch> scratch_;  // One per thread.
  std::vector<SoftmaxState> partial_states_;
  std::vector<float> partial_values_;

  // The current call.
  const AttentionArgs* args_ = nullptr;
  int group_size_ = 0;
  int padded_dim_ = 0;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_ATTENTION_H_
