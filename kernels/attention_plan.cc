#include "kernels/attention_plan.h"

#include <algorithm>

namespace quire {
namespace {

// Query rows times tokens read, the measure of work.
int64_t Cost(const AttentionItem& item, const AttentionPlanOptions& options) {
  return int64_t{item.num_tokens} * options.group_size * item.num_splits;
}

// All items of one sequence, each with all the splits of its rows.
void AddWholeItems(int sequence, int first_token, int num_tokens, int context_len, const AttentionPlanOptions& options,
                   std::vector<AttentionItem>* items) {
  const int tokens_per_item = std::max(1, options.item_rows / options.group_size);
  const int first_position = context_len - num_tokens;
  for (int begin = 0; begin < num_tokens; begin += tokens_per_item) {
    const int end = std::min(num_tokens, begin + tokens_per_item);
    const SplitRange splits = VisibleSplits(first_position + begin, first_position + end - 1, options);
    for (int kv_head = 0; kv_head < options.num_kv_heads; ++kv_head) {
      items->push_back({.sequence = sequence,
                        .kv_head = kv_head,
                        .first_token = first_token + begin,
                        .num_tokens = end - begin,
                        .first_split = splits.begin,
                        .num_splits = splits.end - splits.begin,
                        .first_partial = -1});
    }
  }
}

// Replaces items[index] by one item per split and a merge.
void CutItem(size_t index, const AttentionPlanOptions& options, AttentionPlan* plan) {
  const AttentionItem whole = plan->items[index];
  const int rows = whole.num_tokens * options.group_size;
  plan->merges.push_back({.kv_head = whole.kv_head,
                          .first_token = whole.first_token,
                          .num_tokens = whole.num_tokens,
                          .num_splits = whole.num_splits,
                          .first_partial = plan->num_partials});
  for (int split = 0; split < whole.num_splits; ++split) {
    AttentionItem part = whole;
    part.first_split = whole.first_split + split;
    part.num_splits = 1;
    part.first_partial = plan->num_partials + split * rows;
    if (split == 0) {
      plan->items[index] = part;
    } else {
      plan->items.push_back(part);
    }
  }
  plan->num_partials += whole.num_splits * rows;
}

}  // namespace

void PlanAttention(const int32_t* query_starts, const int32_t* context_lens, int num_sequences,
                   const AttentionPlanOptions& options, AttentionPlan* plan) {
  plan->items.clear();
  plan->merges.clear();
  plan->num_partials = 0;
  for (int i = 0; i < num_sequences; ++i) {
    AddWholeItems(i, query_starts[i], query_starts[i + 1] - query_starts[i], context_lens[i], options, &plan->items);
  }
  int64_t total_cost = 0;
  for (const AttentionItem& item : plan->items) total_cost += Cost(item, options);

  const size_t num_whole_items = plan->items.size();
  for (size_t i = 0; i < num_whole_items; ++i) {
    const bool is_large = Cost(plan->items[i], options) * options.min_items > total_cost;
    if (is_large && plan->items[i].num_splits > 1) CutItem(i, options, plan);
  }
  std::stable_sort(plan->items.begin(), plan->items.end(),
                   [&](const AttentionItem& a, const AttentionItem& b) { return Cost(a, options) > Cost(b, options); });
}

}  // namespace quire
