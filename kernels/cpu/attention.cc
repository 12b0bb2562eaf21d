// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/input_tiles.h"
#include "kernels/cpu/kv_unit.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

constexpr int kUnitTokens = KvLayout::kUnitTokens;
constexpr SoftmaxState kEmptyState = {-std::numeric_limits<float>::infinity(), 0};

// Returns the start of the unit of the pool that holds token `token` of a sequence.
size_t UnitStart(const KvLayout& layout, const uint32_t* block_table, int kv_head, int token) {
  return layout.unit_start(block_table[token / layout.block_size], kv_head, token % layout.block_size);
}

// Copies K and V of one token and head from rows to a unit.
template <typename T>
void CopyToken(const char* k, const char* v, int dim, const UnitStrides& key, const UnitStrides& value, char* unit) {
  T* const to = reinterpret_cast<T*>(unit);
  for (int d = 0; d < dim; ++d) {
    to[key.At(d)] = reinterpret_cast<const T*>(k)[d];
    to[value.At(d)] = reinterpret_cast<const T*>(v)[d];
  }
}

}  // namespace

CpuAttention::CpuAttention(const KernelTable* kernels, ThreadPool* pool)
    : kernels_(kernels), pool_(pool), scratch_(pool->num_threads()) {}

void CpuAttention::Run(const AttentionArgs& args) {
  static_assert(kWindowAlignment % kAttentionTileTokens == 0);
  constexpr int kItemRows = 32;  // Limit for kernels that widen K and V to float32.
  const int num_kv_heads = args.layout->num_kv_heads;
  args_ = &args;
  group_size_ = args.num_heads / num_kv_heads;
  padded_dim_ = (args.layout->head_dim + 15) / 16 * 16;
  plan_ = &planner_.Plan(*args.batch, {.num_kv_heads = num_kv_heads,
                                       .group_size = group_size_,
                                       .window = args.window,
                                       .block_size = args.layout->block_size,
                                       .tile_tokens = kAttentionTileTokens,
                                       .split_tokens = kSplitTokens,
                                       .item_rows = MultipliesPairs(args.layout->type) ? kMaxAttentionRows : kItemRows,
                                       .min_items = 4 * pool_->num_threads()});
  if (partial_states_.size() < size_t(plan_->num_partials)) partial_states_.resize(plan_->num_partials);
  const size_t partial_values = size_t(plan_->num_partials) * padded_dim_;
  if (partial_values_.size() < partial_values) partial_values_.resize(partial_values);

  int begin = 0;
  for (const int end : plan_->phase_ends) {
    const int num_items = (end - begin) * num_kv_heads;
    pool_->ForEach(num_items, [&](int i, int thread) {
      const int next = i + pool_->num_threads();  // Probably the next one on this thread.
      Scratch* const scratch = &scratch_[thread];
      scratch->next_item = next < num_items ? &plan_->items[begin + next / num_kv_heads] : nullptr;
      scratch->next_kv_head = next % num_kv_heads;
      RunItem(plan_->items[begin + i / num_kv_heads], i % num_kv_heads, scratch);
    });
    begin = end;
  }
  pool_->ForEach(int(plan_->merges.size()) * num_kv_heads,
                 [&](int i, int) { RunMerge(plan_->merges[i / num_kv_heads], i % num_kv_heads); });
}

void CpuAttention::RunItem(const AttentionItem& item, int kv_head, Scratch* scratch) {
  const int num_rows = item.num_rows * group_size_;
  const size_t num_values = size_t(num_rows) * padded_dim_;
  scratch->states.resize(2 * num_rows);
  scratch->values.resize(2 * num_values);
  ListQueries(item, kv_head, scratch);
  if (IsVectorised(*args_->layout)) ListUnits(item, kv_head, scratch);

  if (item.partial.first >= 0) {
    const Rows partial = PartialRows(item.partial, kv_head);
    if (item.resumed.first < 0) ClearRows(num_rows, partial);
    return RunSplit(item, kv_head, item.begin / kSplitTokens, partial, scratch);
  }
  const Rows all = {scratch->states.data(), scratch->values.data()};
  const Rows one = {scratch->states.data() + num_rows, scratch->values.data() + num_values};
  RunSplits(item, kv_head, all, one, scratch);
  WriteOutput(item.first_row, item.num_rows, kv_head, all);
}

void CpuAttention::RunSplits(const AttentionItem& item, int kv_head, Rows all, Rows one, Scratch* scratch) {
  const int num_rows = item.num_rows * group_size_;
  ClearRows(num_rows, all);
  for (int i = 0; i < item.num_places; ++i) {
    MergeRows(num_rows, all, PartialRows(plan_->places[item.first_place + i], kv_head));
  }
  const int first_split = item.begin / kSplitTokens, last_split = (item.end - 1) / kSplitTokens;
  for (int split = first_split; split <= last_split; ++split) {
    const bool is_first = split == first_split;
    const bool joins_nothing = is_first && item.num_places == 0;
    const Rows rows = joins_nothing ? all : one;
    if (is_first && item.resumed.first >= 0) {
      CopyRows(num_rows, PartialRows(item.resumed, kv_head), rows);
    } else {
      ClearRows(num_rows, rows);
    }
    RunSplit(item, kv_head, split, rows, scratch);
    if (!joins_nothing) MergeRows(num_rows, all, one);
  }
}

void CpuAttention::ListQueries(const AttentionItem& item, int kv_head, Scratch* scratch) {
  const int num_rows = item.num_rows * group_size_;
  scratch->queries.resize(num_rows);
  scratch->queries_are_rounded = false;
  if (kernels_->multiplies_pairs && args_->layout->type == KvType::kBFloat16) {
    scratch->rounded_queries.resize(size_t(num_rows + 15) / 16 * 16 * ((padded_dim_ + 31) / 32));
  }
  scratch->visible_begin.resize(num_rows);
  scratch->visible_end.resize(num_rows);
  const float* q = static_cast<const float*>(args_->q);
  for (int row = 0; row < num_rows; ++row) {
    const int token = TokenOf(item.first_row + row / group_size_), head = kv_head * group_size_ + row % group_size_;
    scratch->queries[row] = q + int64_t{token} * args_->q_stride + int64_t{head} * args_->layout->head_dim;
  }
}

// Lists all units of the item, so that the kernel can prefetch beyond the current split. The first units of the next
// item follow. While a tile is used, the kernel fetches the four units behind it in the list. The last tile may have a
// single unit, so seven more units let it fetch what is left of the next item's first tile.
void CpuAttention::ListUnits(const AttentionItem& item, int kv_head, Scratch* scratch) {
  scratch->first_listed = item.begin;
  scratch->units.clear();
  AppendUnits(item, kv_head, item.end, &scratch->units);
  if (scratch->next_item == nullptr) return;
  constexpr int kAhead = 2 * kAttentionTileUnits - 1;
  const AttentionItem& next = *scratch->next_item;
  const size_t size = scratch->units.size() + kAhead;
  AppendUnits(next, scratch->next_kv_head, std::min(next.end, next.begin + kAhead * kUnitTokens), &scratch->units);
  scratch->units.resize(size, scratch->units.back());  // A short item's last unit is fetched again.
}

void CpuAttention::AppendUnits(const AttentionItem& item, int kv_head, int end, std::vector<const void*>* units) const {
  const KvLayout& layout = *args_->layout;
  const uint32_t* table = args_->batch->block_tables + args_->batch->table_starts[item.sequence];
  for (int token = item.begin; token < end; token += kUnitTokens) {
    units->push_back(static_cast<const char*>(args_->kv_pool) +
                     UnitStart(layout, table, kv_head, token) * SizeOf(layout.type));
  }
}

void CpuAttention::RunSplit(const AttentionItem& item, int kv_head, int split, Rows rows, Scratch* scratch) {
  const int num_rows = item.num_rows * group_size_;
  const int first = std::max(item.begin, split * kSplitTokens), last = std::min(item.end, (split + 1) * kSplitTokens);
  int begin = last, end = first;  // The range of tokens in the split that at least one row sees.
  for (int i = 0; i < item.num_rows; ++i) {
    const int position = args_->batch->positions[TokenOf(item.first_row + i)];
    const int row_begin = std::max(first, FirstVisible(position, args_->window)),
              row_end = std::min(last, position + 1);
    std::fill_n(&scratch->visible_begin[i * group_size_], group_size_, row_begin);
    std::fill_n(&scratch->visible_end[i * group_size_], group_size_, row_end);
    if (row_begin >= row_end) continue;
    begin = std::min(begin, row_begin);
    end = std::max(end, row_end);
  }
  begin = begin / kAttentionTileTokens * kAttentionTileTokens;
  BFloat16* const rounded_queries = scratch->rounded_queries.empty() ? nullptr : scratch->rounded_queries[0].values;
  AttentionTask task = {.units = nullptr,
                        .queries = scratch->queries.data(),
                        .rounded_queries = rounded_queries,
                        .queries_are_rounded = scratch->queries_are_rounded,
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
                        .scale = args_->scale,
                        .softcap = args_->softcap};
  if (IsVectorised(*args_->layout)) {
    AttendInPlace(begin, end, &task, *scratch);
  } else {
    AttendGathered(item, kv_head, begin, end, &task, scratch);
  }
  scratch->queries_are_rounded = true;
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
  if (!MultipliesPairs(layout.type)) layout.type = KvType::kFloat32;
  return layout;
}

// Gathers and attends tile by tile. Lanes without a token hold zeros, so nothing unwritten is read.
void CpuAttention::AttendGathered(const AttentionItem& item, int kv_head, int begin, int end, AttentionTask* task,
                                  Scratch* scratch) {
  const KvLayout layout = GatheredLayout();
  const size_t unit_bytes = layout.unit_bytes();
  scratch->units.resize(kAttentionTileUnits);
  for (int tile = begin; tile < end; tile += kAttentionTileTokens) {
    scratch->tile.assign(kAttentionTileUnits * unit_bytes, 0);
    for (int i = 0; i < kAttentionTileUnits; ++i) scratch->units[i] = scratch->tile.data() + i * unit_bytes;
    const int tile_end = std::min(end, tile + kAttentionTileTokens);
    for (int token = tile; token < tile_end; ++token) {
      const int in_tile = token - tile;
      GatherToken(item, kv_head, token, in_tile % kUnitTokens,
                  scratch->tile.data() + in_tile / kUnitTokens * unit_bytes);
    }
    task->units = scratch->units.data();
    task->num_units = (tile_end - tile + kUnitTokens - 1) / kUnitTokens;
    task->first_token = tile;
    kernels_->attend[int(layout.type)](*task);
    task->queries_are_rounded = true;
  }
}

// In the pool, units that are not vectorised hold one row per token. In a tile, the lanes of K are tokens.
void CpuAttention::GatherToken(const AttentionItem& item, int kv_head, int token, int lane, char* unit) const {
  const KvLayout& layout = *args_->layout;
  const uint32_t* table = args_->batch->block_tables + args_->batch->table_starts[item.sequence];
  const int in_unit = token % layout.block_size % layout.unit_tokens();
  const char* from =
      static_cast<const char*>(args_->kv_pool) + UnitStart(layout, table, kv_head, token) * SizeOf(layout.type);
  const char* k = from + size_t(in_unit) * layout.head_dim * SizeOf(layout.type);
  const char* v = k + layout.value_start() * SizeOf(layout.type);
  const KvLayout gathered = GatheredLayout();
  const UnitStrides key = KeyStrides(gathered, lane), value = ValueStrides(gathered, lane);
  if (gathered.type == KvType::kBFloat16) return CopyToken<BFloat16>(k, v, layout.head_dim, key, value, unit);
  if (gathered.type == KvType::kInt8) {
    const auto copy_scale = [&](size_t from_first, size_t to_first) {
      memcpy(unit + to_first + lane * sizeof(float), from + from_first + in_unit * sizeof(float), sizeof(float));
    };
    copy_scale(layout.key_scales_start(), gathered.key_scales_start());
    copy_scale(layout.value_scales_start(), gathered.value_scales_start());
    return CopyToken<int8_t>(k, v, layout.head_dim, key, value, unit);
  }
  const auto widen = kernels_->widen[int(layout.type)];
  auto* to = reinterpret_cast<float*>(unit);
  float wide[kMaxHeadDim];
  widen(k, wide, layout.head_dim);
  for (int d = 0; d < layout.head_dim; ++d) to[key.At(d)] = wide[d];
  widen(v, to + value.start, layout.head_dim);
}

void CpuAttention::RunMerge(const AttentionMerge& merge, int kv_head) {
  const int num_rows = merge.num_rows * group_size_;
  const PartialPlace* places = plan_->places.data() + merge.first_place;
  const Rows all = PartialRows(places[0], kv_head);
  for (int i = 1; i < merge.num_places; ++i) MergeRows(num_rows, all, PartialRows(places[i], kv_head));
  WriteOutput(merge.first_row, merge.num_rows, kv_head, all);
}

CpuAttention::Rows CpuAttention::PartialRows(const PartialPlace& place, int kv_head) {
  const size_t first = size_t(place.first) + size_t(kv_head) * place.head_stride;
  return {partial_states_.data() + first, partial_values_.data() + first * padded_dim_};
}

void CpuAttention::ClearRows(int num_rows, Rows rows) const {
  std::fill(rows.states, rows.states + num_rows, kEmptyState);
  std::fill(rows.values, rows.values + size_t(num_rows) * padded_dim_, 0.0f);
}

void CpuAttention::CopyRows(int num_rows, Rows from, Rows to) const {
  std::copy(from.states, from.states + num_rows, to.states);
  std::copy(from.values, from.values + size_t(num_rows) * padded_dim_, to.values);
}

void CpuAttention::MergeRows(int num_rows, Rows into, Rows from) const {
  kernels_->merge_softmax(num_rows, into.states, into.values, from.states, from.values, padded_dim_);
}

void CpuAttention::WriteOutput(int first_row, int num_rows, int kv_head, Rows rows) const {
  const int head_dim = args_->layout->head_dim;
  const TileOrder tiles(args_->batch->num_tokens, args_->num_heads * head_dim, SlicesOf(args_->out_layout));
  for (int row = 0; row < num_rows * group_size_; ++row) {
    const int token = TokenOf(first_row + row / group_size_), head = kv_head * group_size_ + row % group_size_;
    const int64_t at = (int64_t{token} * args_->num_heads + head) * head_dim;
    SoftmaxState state = rows.states[row];
    if (args_->sinks != nullptr) {
      float term = args_->sinks[head] - state.max;
      kernels_->exp(&term, 1, &term);
      state.sum += term;
    }
    float out[kMaxHeadDim];
    kernels_->finish_softmax(state, rows.values + size_t(row) * padded_dim_, out, head_dim);
    if (args_->out_layout != InputLayout::kRows) {
      BFloat16 rounded[kMaxHeadDim];
      kernels_->convert[int(DataType::kBFloat16)](out, rounded, head_dim);
      StoreInTiles(rounded, head_dim, token, head * head_dim, tiles, static_cast<BFloat16*>(args_->out));
      continue;
    }
    kernels_->convert[int(args_->out_type)](out, static_cast<char*>(args_->out) + at * int64_t(SizeOf(args_->out_type)),
                                            head_dim);
  }
}

}  // namespace quire::cpu
