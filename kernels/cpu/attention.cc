#include "kernels/cpu/attention.h"

#include <algorithm>
#include <limits>

#include "kernels/cpu/kv_unit.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

constexpr int kUnitTokens = KvLayout::kUnitTokens;
constexpr SoftmaxState kEmptyState = {-std::numeric_limits<float>::infinity(), 0};

// The unit of the pool that holds token `token` of a sequence.
size_t UnitStart(const KvLayout& layout, const uint32_t* block_table, int kv_head, int token) {
  return layout.unit_start(block_table[token / layout.block_size], kv_head, token % layout.block_size);
}

}  // namespace

CpuAttention::CpuAttention(const KernelTable* kernels, ThreadPool* pool)
    : kernels_(kernels), pool_(pool), scratch_(pool->num_threads()) {}

void CpuAttention::Run(const AttentionArgs& args) {
  constexpr int kItemRows = 32;  // Of kernels that widen K and V.
  const bool multiplies_pairs = args.layout->type == DataType::kBFloat16 && kernels_->multiplies_pairs;
  args_ = &args;
  group_size_ = args.num_heads / args.layout->num_kv_heads;
  padded_dim_ = (args.layout->head_dim + 15) / 16 * 16;
  const AttentionPlanOptions options = {.num_kv_heads = args.layout->num_kv_heads,
                                        .group_size = group_size_,
                                        .window = args.window,
                                        .split_tokens = kSplitTokens,
                                        .item_rows = multiplies_pairs ? kMaxAttentionRows : kItemRows,
                                        .min_items = 4 * pool_->num_threads()};
  PlanAttention(args.batch->query_starts, args.batch->context_lens, args.batch->num_sequences, options, &plan_);
  if (partial_states_.size() < size_t(plan_.num_partials)) partial_states_.resize(plan_.num_partials);
  const size_t partial_values = size_t(plan_.num_partials) * padded_dim_;
  if (partial_values_.size() < partial_values) partial_values_.resize(partial_values);

  pool_->ForEach(int(plan_.items.size()), [&](int i, int thread) { RunItem(plan_.items[i], &scratch_[thread]); });
  pool_->ForEach(int(plan_.merges.size()), [&](int i, int) { RunMerge(plan_.merges[i]); });
}

void CpuAttention::RunItem(const AttentionItem& item, Scratch* scratch) {
  const int num_rows = item.num_tokens * group_size_;
  const size_t num_values = size_t(num_rows) * padded_dim_;
  scratch->queries.resize(num_rows);
  scratch->visible_begin.resize(num_rows);
  scratch->visible_end.resize(num_rows);
  scratch->states.resize(2 * num_rows);
  scratch->values.resize(2 * num_values);
  const float* q = static_cast<const float*>(args_->q);
  for (int row = 0; row < num_rows; ++row) {
    const int head = item.kv_head * group_size_ + row % group_size_;
    scratch->queries[row] =
        q + int64_t{item.first_token + row / group_size_} * args_->q_stride + int64_t{head} * args_->layout->head_dim;
  }

  if (IsVectorised(*args_->layout)) ListUnits(item, scratch);

  if (item.first_partial >= 0) {
    const Rows partial = {partial_states_.data() + item.first_partial,
                          partial_values_.data() + size_t(item.first_partial) * padded_dim_};
    return RunSplit(item, item.first_split, partial, scratch);
  }
  const Rows all = {scratch->states.data(), scratch->values.data()};
  const Rows one = {scratch->states.data() + num_rows, scratch->values.data() + num_values};
  RunSplit(item, item.first_split, all, scratch);
  for (int i = 1; i < item.num_splits; ++i) {
    RunSplit(item, item.first_split + i, one, scratch);
    MergeRows(num_rows, all, one);
  }
  WriteOutput(item.first_token, item.num_tokens, item.kv_head, all);
}

// All units that the rows of the item see, so that the kernel can fetch ahead beyond its split.
void CpuAttention::ListUnits(const AttentionItem& item, Scratch* scratch) {
  const KvLayout& layout = *args_->layout;
  const uint32_t* table = args_->batch->block_tables + args_->batch->table_starts[item.sequence];
  const int first_position = args_->batch->positions[item.first_token];
  const int last_position = args_->batch->positions[item.first_token + item.num_tokens - 1];
  const int begin = std::max(item.first_split * kSplitTokens, FirstVisible(first_position, args_->window));
  const int end = std::min((item.first_split + item.num_splits) * kSplitTokens, last_position + 1);
  scratch->first_listed = begin / kAttentionTileTokens * kAttentionTileTokens;
  scratch->units.clear();
  for (int token = scratch->first_listed; token < end; token += kUnitTokens) {
    scratch->units.push_back(static_cast<const char*>(args_->kv_pool) +
                             UnitStart(layout, table, item.kv_head, token) * SizeOf(layout.type));
  }
}

void CpuAttention::RunSplit(const AttentionItem& item, int split, Rows rows, Scratch* scratch) {
  const int num_rows = item.num_tokens * group_size_;
  const int split_begin = split * kSplitTokens, split_end = split_begin + kSplitTokens;
  int begin = split_end, end = split_begin;  // What any row sees of the split.
  for (int row = 0; row < num_rows; ++row) {
    const int position = args_->batch->positions[item.first_token + row / group_size_];
    scratch->visible_begin[row] = std::max(split_begin, FirstVisible(position, args_->window));
    scratch->visible_end[row] = std::min(split_end, position + 1);
    if (scratch->visible_begin[row] >= scratch->visible_end[row]) continue;
    begin = std::min(begin, scratch->visible_begin[row]);
    end = std::max(end, scratch->visible_end[row]);
  }
  begin = begin / kAttentionTileTokens * kAttentionTileTokens;
  std::fill(rows.states, rows.states + num_rows, kEmptyState);
  std::fill(rows.values, rows.values + size_t(num_rows) * padded_dim_, 0.0f);
  AttentionTask task = {.units = nullptr,
                        .queries = scratch->queries.data(),
                        .visible_begin = scratch->visible_begin.data(),
                        .visible_end = scratch->visible_end.data(),
                        .states = rows.states,
                        .values = rows.values,
                        .num_units = 0,
                        .num_following = 0,
                        .first_token = 0,
                        .num_rows = num_rows,
                        .head_dim = args_->layout->head_dim,
                        .padded_dim = padded_dim_,
                        .scale = args_->scale};
  if (IsVectorised(*args_->layout)) {
    AttendInPlace(begin, end, &task, *scratch);
  } else {
    AttendGathered(item, begin, end, &task, scratch);
  }
}

void CpuAttention::AttendInPlace(int begin, int end, AttentionTask* task, const Scratch& scratch) {
  const int first = (begin - scratch.first_listed) / kUnitTokens;
  task->units = scratch.units.data() + first;
  task->num_units = (end - begin + kUnitTokens - 1) / kUnitTokens;
  task->num_following = int(scratch.units.size()) - first - task->num_units;
  task->first_token = begin;
  kernels_->attend[int(args_->layout->type)](*task);
}

KvLayout CpuAttention::GatheredLayout() const {
  KvLayout layout = *args_->layout;
  layout.block_size = kUnitTokens;
  layout.head_dim = padded_dim_;
  if (layout.type != DataType::kBFloat16 || !kernels_->multiplies_pairs) layout.type = DataType::kFloat32;
  return layout;
}

// Tile by tile with zeros where no token is: nothing unwritten is read.
void CpuAttention::AttendGathered(const AttentionItem& item, int begin, int end, AttentionTask* task,
                                  Scratch* scratch) {
  const KvLayout layout = GatheredLayout();
  const size_t unit_bytes = layout.unit_elements() * SizeOf(layout.type);
  scratch->units.resize(kAttentionTileUnits);
  for (int tile = begin; tile < end; tile += kAttentionTileTokens) {
    scratch->tile.assign(kAttentionTileUnits * unit_bytes, 0);
    for (int i = 0; i < kAttentionTileUnits; ++i) scratch->units[i] = scratch->tile.data() + i * unit_bytes;
    const int tile_end = std::min(end, tile + kAttentionTileTokens);
    for (int token = tile; token < tile_end; ++token) {
      const int in_tile = token - tile;
      GatherToken(item, token, in_tile % kUnitTokens, scratch->tile.data() + in_tile / kUnitTokens * unit_bytes);
    }
    task->units = scratch->units.data();
    task->num_units = (tile_end - tile + kUnitTokens - 1) / kUnitTokens;
    task->first_token = tile;
    kernels_->attend[int(layout.type)](*task);
  }
}

// Units that are not vectorised hold rows. In a tile tokens are lanes of K.
void CpuAttention::GatherToken(const AttentionItem& item, int token, int lane, char* unit) const {
  const KvLayout& layout = *args_->layout;
  const uint32_t* table = args_->batch->block_tables + args_->batch->table_starts[item.sequence];
  const size_t row = size_t(token % layout.block_size % layout.unit_tokens()) * layout.head_dim;
  const char* k = static_cast<const char*>(args_->kv_pool) +
                  (UnitStart(layout, table, item.kv_head, token) + row) * SizeOf(layout.type);
  const char* v = k + layout.value_start() * SizeOf(layout.type);
  const KvLayout gathered = GatheredLayout();
  const UnitStrides key = KeyStrides(gathered, lane), value = ValueStrides(gathered, lane);
  if (gathered.type == DataType::kBFloat16) {
    auto* to = reinterpret_cast<BFloat16*>(unit);
    for (int d = 0; d < layout.head_dim; ++d) {
      to[key.At(d)] = reinterpret_cast<const BFloat16*>(k)[d];
      to[value.At(d)] = reinterpret_cast<const BFloat16*>(v)[d];
    }
    return;
  }
  const auto widen = kernels_->widen[int(layout.type)];
  auto* to = reinterpret_cast<float*>(unit);
  float wide[kMaxHeadDim];
  widen(k, wide, layout.head_dim);
  for (int d = 0; d < layout.head_dim; ++d) to[key.At(d)] = wide[d];
  widen(v, to + value.start, layout.head_dim);
}

void CpuAttention::RunMerge(const AttentionMerge& merge) {
  const int num_rows = merge.num_tokens * group_size_;
  const auto partial = [&](int split) -> Rows {
    const size_t first = merge.first_partial + size_t(split) * num_rows;
    return {partial_states_.data() + first, partial_values_.data() + first * padded_dim_};
  };
  for (int split = 1; split < merge.num_splits; ++split) MergeRows(num_rows, partial(0), partial(split));
  WriteOutput(merge.first_token, merge.num_tokens, merge.kv_head, partial(0));
}

// A row whose window or position leaves it nothing of the split passes.
void CpuAttention::MergeRows(int num_rows, Rows into, Rows from) {
  for (int row = 0; row < num_rows; ++row) {
    if (from.states[row].sum == 0) continue;
    const size_t values = size_t(row) * padded_dim_;
    kernels_->merge_softmax(&into.states[row], into.values + values, from.states[row], from.values + values,
                            padded_dim_);
  }
}

void CpuAttention::WriteOutput(int first_token, int num_tokens, int kv_head, Rows rows) {
  const int head_dim = args_->layout->head_dim;
  for (int row = 0; row < num_tokens * group_size_; ++row) {
    const int token = first_token + row / group_size_, head = kv_head * group_size_ + row % group_size_;
    float* out = static_cast<float*>(args_->out) + (int64_t{token} * args_->num_heads + head) * head_dim;
    kernels_->finish_softmax(rows.states[row], rows.values + size_t(row) * padded_dim_, out, head_dim);
  }
}

}  // namespace quire::cpu
