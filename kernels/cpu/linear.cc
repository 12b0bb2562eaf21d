// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/linear.h"

#include <algorithm>
#include <climits>
#include <cstring>

#include "kernels/cpu/rounding.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

constexpr int kLineBytes = 64;  // Size of a cache line.
// Lines of first-level caches whose distance is a multiple of this share a set of at
// least kCacheSetLines lines.
constexpr int kCacheSetDistance = 4096;
constexpr int kCacheSetLines = 8;

// The rows of x that pass over a panel together fit into the second-level cache, with two panels and one panel's part
// of y.
constexpr int64_t kRowBytesPerItem = 512 << 10;
constexpr int kMinRowsPerItem = 128;
// Rounding or copying fewer numbers than this takes less time than waking a thread for them.
constexpr int kMinFloatsPerItem = 32 << 10;
// Work items per thread. Several items even out threads of unequal speed.
constexpr int kItemsPerThread = 8;
// Number of panels that the kernels process at once with few rows, so the panels of an item are a multiple of it.
constexpr int kPanelsAtOnce = 4;

// Items whose rows are in tiles. A block of k of the rows and the sums of the item fit into the second-level cache.
constexpr int kMaxTiledRowsPerItem = 512;
constexpr int kMinTiledRowsPerItem = 128;
constexpr int kMaxTiledPanelsPerItem = 8;
// The time of an item in units of reading an element of x or of the weights from beyond the second-level cache: for
// each product, and for the start of the item.
constexpr double kProductTime = 0.00625;
constexpr double kItemTime = 15000;
// The elements of x that stay in that cache.
constexpr int64_t kMaxCachedElements = 384 << 10;

int RowsPerItem(int num_rows, int64_t row_bytes) {
  constexpr int kStep = 32;  // Number of rows of the largest tile.
  const int most = std::max(kMinRowsPerItem, int(kRowBytesPerItem / row_bytes) / kStep * kStep);
  return RoundUp(CeilDiv(num_rows, CeilDiv(num_rows, most)), kStep);
}

// Returns the number of panels of an item with which all threads are done first, if items take equally long. It is a
// multiple of kPanelsAtOnce, and gives each thread about kItemsPerThread items or more. It has no effect on the bits of
// the result.
int PanelsPerItem(int num_panels, int num_row_blocks, int num_threads) {
  const int most = RoundUp(CeilDiv(num_panels * num_row_blocks, num_threads * kItemsPerThread), kPanelsAtOnce);
  int best = most, best_time = INT_MAX;
  for (int panels = most; panels > 0; panels -= kPanelsAtOnce) {
    const int time = CeilDiv(num_row_blocks * CeilDiv(num_panels, panels), num_threads) * panels;
    if (time >= best_time) continue;
    best = panels;
    best_time = time;
  }
  return best;
}

// Bytes of the headers of a row whose groups are rounded, and of the whole row.
int GroupHeaderBytes(const CpuPackedMatrix& w) {
  return RoundUp(w.num_groups() * int(sizeof(GroupHeader)), kLineBytes);
}
int GroupedRowBytes(const CpuPackedMatrix& w) {
  return GroupHeaderBytes(w) + w.padded_cols();
}

// Rows and panels of an item.
struct ItemSize {
  int rows;
  int panels;
};

// Estimates the time of a product in items of this size. Each item reads all of its x and weights. The threads take
// equally many items, and in the mean wait for half an item at the end.
double EstimatedTime(const CpuPackedMatrix& w, int num_rows, ItemSize item, int num_threads) {
  const double cols = w.cols(), columns = item.panels * kPanelColumns;
  const bool is_cached = item.rows * cols <= kMaxCachedElements;
  const double elements = columns + (is_cached ? 0 : item.rows);
  const int num_items = CeilDiv(num_rows, item.rows) * CeilDiv(w.num_panels(), item.panels);
  const double item_time = cols * (kProductTime * item.rows * columns + elements) + kItemTime;
  return (CeilDiv(num_items, num_threads) + 0.5) * item_time;
}

// Returns the size with the lowest estimate. It has no effect on the bits of the result.
ItemSize TiledItemSize(const CpuPackedMatrix& w, int num_rows, int num_threads) {
  ItemSize best{};
  double best_time = 0;
  const int most_blocks = CeilDiv(num_rows, kMinTiledRowsPerItem);
  for (int num_blocks = CeilDiv(num_rows, kMaxTiledRowsPerItem); num_blocks <= most_blocks; ++num_blocks) {
    for (int panels = 1; panels <= kMaxTiledPanelsPerItem; ++panels) {
      const ItemSize item = {RoundUp(CeilDiv(num_rows, num_blocks), kTilePairRows), panels};
      const double time = EstimatedTime(w, num_rows, item, num_threads);
      if (best.rows != 0 && time >= best_time) continue;
      best = item;
      best_time = time;
    }
  }
  return best;
}

// Returns whether the kernel needs scratch memory for a panel of weights when it multiplies rows.
bool NeedsPanelScratch(WeightFormat format) {
  return format == WeightFormat::kFp8 || format == WeightFormat::kInt4 || format == WeightFormat::kInt4BFloat16 ||
         format == WeightFormat::kInt4Units;
}

// In a gated matrix, the bias of up follows that of the gate.
void SetBias(const CpuPackedMatrix& w, const float* bias, LinearTask* whole) {
  whole->y.bias = bias;
  if (w.is_gated()) whole->y.up_bias = bias == nullptr ? nullptr : bias + w.num_outputs();
}

LinearTask TaskFor(const LinearArgs& args) {
  LinearTask whole{};
  whole.x.data = args.x;
  whole.y.stride = static_cast<const CpuPackedMatrix&>(*args.w).num_outputs();
  whole.y.bias = args.bias;
  whole.y.residual = static_cast<const float*>(args.residual);
  whole.y.data = args.y;
  whole.y.type = DataType::kFloat32;
  whole.num_rows = args.num_tokens;
  whole.y.scale = args.scale;
  whole.y.softcap = args.softcap;
  return whole;
}

LinearTask TaskFor(const GatedLinearArgs& args) {
  const auto& w = static_cast<const CpuPackedMatrix&>(*args.w);
  LinearTask whole{};
  whole.x.data = args.x;
  whole.y.stride = w.num_outputs();
  SetBias(w, args.bias, &whole);
  whole.y.data = args.y;
  whole.y.type = args.y_type;
  whole.num_rows = args.num_tokens;
  whole.y.activation = args.activation;
  whole.y.is_tiled = args.y_layout != InputLayout::kRows;
  whole.y.slices = SlicesOf(args.y_layout);
  return whole;
}

}  // namespace

void CpuLinear::Run(const LinearArgs& args) {
  const auto& w = static_cast<const CpuPackedMatrix&>(*args.w);
  const LinearTask whole = TaskFor(args);
  if (w.parts().empty()) return Multiply(w, args.x_layout, whole);
  int column = 0;
  for (const auto& part : w.parts()) {
    LinearTask own = whole;
    own.y.data = static_cast<float*>(whole.y.data) + column;
    if (whole.y.bias != nullptr) own.y.bias += column;
    if (whole.y.residual != nullptr) own.y.residual += column;
    Multiply(*part, args.x_layout, own);
    column += part->num_outputs();
  }
}

void CpuLinear::Run(const GatedLinearArgs& args) {
  Multiply(static_cast<const CpuPackedMatrix&>(*args.w), args.x_layout, TaskFor(args));
}

void CpuLinear::RunGroups(const LinearArgs& args, const std::vector<RowGroup>& groups) {
  MultiplyGroups(groups, TaskFor(args));
}

void CpuLinear::RunGroups(const GatedLinearArgs& args, const std::vector<RowGroup>& groups) {
  MultiplyGroups(groups, TaskFor(args));
}

bool CpuLinear::MultipliesTiles(const CpuPackedMatrix& w, int num_rows) const {
  const WeightFormat format = w.format();
  const bool has_kernel =
      format == WeightFormat::kBFloat16 || format == WeightFormat::kInt4 || format == WeightFormat::kInt4Units;
  return kernels_.takes_tiles && has_kernel && num_rows > InputTiles::kMaxPlainRows;
}

// Tiles of whole columns fit into the memory of rows of float32, because the number of rows at most doubles.
InputLayout CpuLinear::InputLayoutOf(const CpuPackedMatrix& w, int num_tokens) const {
  const bool fills_tiles = num_tokens > InputTiles::kMaxOwnRows && w.cols() == w.padded_cols();
  const bool takes_tiles = w.format() == WeightFormat::kBFloat16 && MultipliesTiles(w, num_tokens);
  return fills_tiles && takes_tiles ? TilesOf(w.num_slices()) : InputLayout::kRows;
}

int64_t CpuLinear::PrepareInput(const CpuPackedMatrix& w, LinearTask* whole) {
  if (!w.order().empty()) OrderInput(w, whole);
  if (w.format() == WeightFormat::kInt8) return QuantizeInput(w, whole);
  if (w.format() == WeightFormat::kInt4) return QuantizeInputGroups(w, whole);
  if (w.format() == WeightFormat::kInt4Units) return PairInput(w, whole);
  if (IsInBlocks(w.format())) return QuantizeInputBlocks(w, whole);
  whole->x.stride = w.cols();
  if (InputType(w) == DataType::kFloat32) return whole->x.stride * int64_t(sizeof(float));
  whole->x.stride = w.padded_cols();
  if (SharesCacheSets(whole->num_rows, whole->x.stride)) whole->x.stride += kLineBytes / int(sizeof(BFloat16));
  if (whole->x.stride != w.cols()) PadInput(w, whole);
  return whole->x.stride * int64_t(sizeof(BFloat16));
}

char* CpuLinear::CopyMemory(size_t bytes) {
  return static_cast<char*>(GrownTo(bytes, &copy_));
}

void CpuLinear::OrderInput(const CpuPackedMatrix& w, LinearTask* whole) {
  InputType(w) == DataType::kBFloat16 ? OrderInputOf<BFloat16>(w, whole) : OrderInputOf<float>(w, whole);
}

template <typename T>
void CpuLinear::OrderInputOf(const CpuPackedMatrix& w, LinearTask* whole) {
  const auto* const from = static_cast<const T*>(whole->x.data);
  auto* const to = static_cast<T*>(GrownTo(MatrixBytes(whole->num_rows, w.cols(), sizeof(T)), &ordered_));
  const int rows_per_item = std::max(1, kMinFloatsPerItem / w.cols());
  pool_->ForEach(CeilDiv(whole->num_rows, rows_per_item), [&](int item, int) {
    const int begin = item * rows_per_item, end = std::min(begin + rows_per_item, whole->num_rows);
    for (int64_t at = int64_t{begin} * w.cols(); at < int64_t{end} * w.cols(); at += w.cols()) {
      for (int k = 0; k < w.cols(); ++k) to[at + k] = from[at + w.order()[k]];
    }
  });
  whole->x.data = to;
}

void CpuLinear::TakeScratch(size_t num_bytes) {
  scratch_.resize(pool_->num_threads());
  for (Memory& memory : scratch_) GrownTo(num_bytes, &memory);
}

void CpuLinear::PadInput(const CpuPackedMatrix& w, LinearTask* whole) {
  const int64_t cols = w.cols(), stride = whole->x.stride;
  const auto* const from = static_cast<const BFloat16*>(whole->x.data);
  auto* const to = reinterpret_cast<BFloat16*>(CopyMemory(MatrixBytes(whole->num_rows, int(stride), sizeof(BFloat16))));
  const int rows_per_item = std::max(1, kMinFloatsPerItem / w.cols());
  pool_->ForEach(CeilDiv(whole->num_rows, rows_per_item), [&](int item, int) {
    const int begin = item * rows_per_item, end = std::min(begin + rows_per_item, whole->num_rows);
    for (int row = begin; row < end; ++row) {
      std::copy_n(from + row * cols, cols, to + row * stride);
      std::fill(to + row * stride + cols, to + (row + 1) * stride, BFloat16{});
    }
  });
  whole->x.data = to;
}

bool CpuLinear::SharesCacheSets(int num_rows, int64_t x_stride) const {
  if (kernels_.takes_tiles) return false;  // AMX tiles read whole lines.
  const bool has_distance = x_stride * int64_t(sizeof(BFloat16)) % kCacheSetDistance == 0;
  const int rows_per_tile = CeilDiv(num_rows, CeilDiv(num_rows, kernels_.max_tile_rows));
  return has_distance && rows_per_tile > kCacheSetLines;
}

// One row of whole steps is in pairs as it is.
int64_t CpuLinear::PairInput(const CpuPackedMatrix& w, LinearTask* whole) {
  const int num_rows = whole->num_rows, cols = w.cols(), num_steps = CeilDiv(cols, kTileStep);
  whole->x.stride = 2 * num_rows;
  const int64_t row_bytes = int64_t{num_steps} * kTileStep * int64_t(sizeof(BFloat16));
  if (num_rows == 1 && cols % kTileStep == 0) return row_bytes;
  const auto* const from = static_cast<const BFloat16*>(whole->x.data);
  auto* const to = reinterpret_cast<BFloat16*>(CopyMemory(num_rows * row_bytes));
  const int steps_per_item = std::max(1, kMinFloatsPerItem / (num_rows * kTileStep));
  const int64_t step_stride = kTileStep / 2 * whole->x.stride;
  pool_->ForEach(CeilDiv(num_steps, steps_per_item), [&](int item, int) {
    const int step = item * steps_per_item, first = step * kTileStep;
    for (int row = 0; row < num_rows; row += kTilePairRows / 2) {
      kernels_.pair_rows({.x = from + int64_t{row} * cols + first,
                          .x_stride = cols,
                          .num_rows = std::min(kTilePairRows / 2, num_rows - row),
                          .cols = std::min(steps_per_item * kTileStep, cols - first),
                          .y = to + step * step_stride + 2 * row,
                          .y_stride = whole->x.stride,
                          .step_stride = step_stride});
    }
  });
  whole->x.data = to;
  return row_bytes;
}

void CpuLinear::PairInputTiles(const CpuPackedMatrix& w, LinearTask* whole) {
  if (!w.order().empty()) OrderInput(w, whole);
  const PairOrder order(whole->num_rows, w.cols(), w.group(), w.num_slices());
  const auto* const from = static_cast<const BFloat16*>(whole->x.data);
  auto* const to = reinterpret_cast<BFloat16*>(CopyMemory(order.num_elements() * sizeof(BFloat16)));
  const int num_blocks = order.blocks.size;
  pool_->ForEach(order.num_pairs * num_blocks, [&](int part, int) {
    const int pair = part / num_blocks, block = part % num_blocks, first = order.FirstStep(block) * kTileStep;
    for (int tile = 0; tile < 2; ++tile) {
      const int row = pair * kTilePairRows + tile * (kTilePairRows / 2);
      const int num_rows = std::min(kTilePairRows / 2, whole->num_rows - row);
      if (num_rows <= 0) continue;
      kernels_.pair_rows({.x = from + int64_t{row} * w.cols() + first,
                          .x_stride = w.cols(),
                          .num_rows = num_rows,
                          .cols = std::min(order.NumSteps(block) * kTileStep, w.cols() - first),
                          .y = to + order.PartStart(pair, block) + tile * (kTilePairElements / 2),
                          .y_stride = kTilePairRows,
                          .step_stride = kTilePairElements});
    }
  });
  whole->x.data = to;
}

template <typename Quantize>
int64_t CpuLinear::QuantizeRows(const CpuPackedMatrix& w, int row_bytes, LinearTask* whole, Quantize&& quantize) {
  const int64_t stride = RoundUp(row_bytes, kLineBytes);
  const float* const from = static_cast<const float*>(whole->x.data);
  char* const to = CopyMemory(whole->num_rows * stride);
  const int rows_per_item = std::max(1, kMinFloatsPerItem / w.cols());
  pool_->ForEach(CeilDiv(whole->num_rows, rows_per_item), [&](int item, int) {
    const int begin = item * rows_per_item, end = std::min(begin + rows_per_item, whole->num_rows);
    for (int row = begin; row < end; ++row) quantize(from + int64_t{row} * w.cols(), to + row * stride);
  });
  whole->x.data = to;
  whole->x.stride = stride;
  return stride;
}

int64_t CpuLinear::QuantizeInput(const CpuPackedMatrix& w, LinearTask* whole) {
  const int row_bytes = kQuantizedHeaderBytes + w.padded_cols() * kernels_.quantized_bytes;
  return QuantizeRows(w, row_bytes, whole, [&](const float* x, char* row) { kernels_.quantize_row(x, w.cols(), row); });
}

int64_t CpuLinear::QuantizeInputGroups(const CpuPackedMatrix& w, LinearTask* whole) {
  whole->x.header_bytes = GroupHeaderBytes(w);
  return QuantizeRows(w, GroupedRowBytes(w), whole, [&](const float* x, char* row) {
    kernels_.quantize_groups({.x = x,
                              .cols = w.cols(),
                              .group = w.group(),
                              .headers = reinterpret_cast<GroupHeader*>(row),
                              .values = reinterpret_cast<int8_t*>(row + whole->x.header_bytes)});
  });
}

int64_t CpuLinear::QuantizeInputBlocks(const CpuPackedMatrix& w, LinearTask* whole) {
  const BlockType type = BlockTypeOf(w.format());
  return QuantizeRows(w, BlockInputOf(type, w.cols()).row_bytes, whole, [&](const float* x, char* row) {
    kernels_.quantize_blocks({.x = x, .cols = w.cols(), .type = type, .row = row});
  });
}

void CpuLinear::QuantizeTileRow(const CpuPackedMatrix& w, const LinearTask& whole, int row, int rows_per_item,
                                char* scratch) {
  const int group = w.group(), num_groups = w.num_groups(), step = Int4TileStep(group);
  const KBlocks blocks = GroupBlocks(num_groups, group, w.num_slices());
  const int steps_per_group = group / step;
  auto* const headers = reinterpret_cast<GroupHeader*>(scratch);
  auto* const values = reinterpret_cast<int8_t*>(scratch + GroupHeaderBytes(w));
  if (row < whole.num_rows) {
    const float* const x = static_cast<const float*>(whole.x.data) + int64_t{row} * w.cols();
    kernels_.quantize_groups({.x = x, .cols = w.cols(), .group = group, .headers = headers, .values = values});
  } else {
    memset(scratch, 0, GroupedRowBytes(w));
  }
  float* const scales = static_cast<float*>(scales_.data()) + int64_t{row / kTilePairRows} * num_groups * kTilePairRows;
  for (int i = 0; i < num_groups; ++i) scales[i * kTilePairRows + row % kTilePairRows] = headers[i].scale;

  const int first = row / rows_per_item * rows_per_item, pair = (row - first) / kTilePairRows;
  const int num_pairs = CeilDiv(std::min(rows_per_item, whole.num_rows - first), kTilePairRows);
  char* const item = static_cast<char*>(copy_.data()) + int64_t{first} * w.padded_cols();
  for (int block = 0; block < blocks.size; ++block) {
    const int block_begin = blocks.First(block) * steps_per_group, num_steps = blocks.Count(block) * steps_per_group;
    const int64_t at = int64_t{block_begin} * num_pairs + pair * num_steps;
    for (int i = 0; i < num_steps; ++i) {
      memcpy(item + ((at + i) * kTilePairRows + row % kTilePairRows) * step, values + (block_begin + i) * step, step);
    }
  }
}

int64_t CpuLinear::QuantizeInputTiles(const CpuPackedMatrix& w, int rows_per_item, LinearTask* whole) {
  if (!w.order().empty()) OrderInput(w, whole);
  const int num_rows = RoundUp(whole->num_rows, kTilePairRows);
  GrownTo(MatrixBytes(num_rows, w.num_groups(), sizeof(float)), &scales_);
  char* const tiles = CopyMemory(MatrixBytes(num_rows, w.padded_cols(), sizeof(int8_t)));
  const int rows_per_part = std::max(1, kMinFloatsPerItem / w.cols());
  pool_->ForEach(CeilDiv(num_rows, rows_per_part), [&](int part, int thread) {
    const int begin = part * rows_per_part, end = std::min(begin + rows_per_part, num_rows);
    auto* const scratch = static_cast<char*>(scratch_[thread].data());
    for (int row = begin; row < end; ++row) QuantizeTileRow(w, *whole, row, rows_per_item, scratch);
  });
  whole->x.data = tiles;
  return w.padded_cols();
}

CpuLinear::Items CpuLinear::PrepareTiles(const CpuPackedMatrix& w, InputLayout x_layout, LinearTask* whole) {
  const ItemSize size = TiledItemSize(w, whole->num_rows, pool_->num_threads());
  Items items{.rows = size.rows, .panels = size.panels, .x_row_bytes = 0, .copies_tiles = false, .has_scratch = true};
  whole->x.num_tile_pairs = CeilDiv(whole->num_rows, kTilePairRows);
  const size_t kept_rows = size_t(size.rows) * NumKeptSums(w.num_slices());
  const size_t sums_bytes = kept_rows * size.panels * kPanelColumns * sizeof(float);
  if (w.format() == WeightFormat::kInt4) {
    TakeScratch(std::max(2 * kInt4BlockBytes + sums_bytes, size_t(GroupedRowBytes(w))));
    items.x_row_bytes = QuantizeInputTiles(w, size.rows, whole);
  } else if (w.format() == WeightFormat::kInt4Units) {
    TakeScratch(kPairScratchElements * sizeof(BFloat16) + sums_bytes);
    PairInputTiles(w, whole);
  } else {
    TakeScratch(sums_bytes);
    items.copies_tiles = x_layout == InputLayout::kRows;
    if (items.copies_tiles) tiles_.Prepare(w, static_cast<const BFloat16*>(whole->x.data), whole->num_rows);
  }
  return items;
}

CpuLinear::Items CpuLinear::PrepareRows(const CpuPackedMatrix& w, LinearTask* whole) {
  const int64_t x_row_bytes = PrepareInput(w, whole);
  const int rows = RowsPerItem(whole->num_rows, x_row_bytes);
  const int panels = PanelsPerItem(w.num_panels(), CeilDiv(whole->num_rows, rows), pool_->num_threads());
  const bool is_in_blocks = IsInBlocks(w.format());
  const bool has_scratch = is_in_blocks || NeedsPanelScratch(w.format());
  if (has_scratch) {
    TakeScratch(size_t(is_in_blocks ? BlockScratchBytes(rows) : LinearScratchBytes(w.num_groups(), w.group())));
  }
  return {
      .rows = rows, .panels = panels, .x_row_bytes = x_row_bytes, .copies_tiles = false, .has_scratch = has_scratch};
}

LinearTask CpuLinear::TaskOf(const CpuPackedMatrix& w, const LinearTask& whole, const Items& items, int row, int panel,
                             int thread) {
  const int column = panel * w.outputs_per_panel();
  const int64_t at = row * whole.y.stride + column;
  LinearTask task = whole;
  task.x.data = static_cast<const char*>(whole.x.data) + row * items.x_row_bytes;
  if (items.copies_tiles) task.x.data = tiles_.Get(thread);
  if (whole.x.is_tiled && w.format() == WeightFormat::kInt4) {
    task.x.scales = static_cast<const float*>(scales_.data()) + int64_t{row} * w.num_groups();
  }
  task.first_row = row;
  task.first_column = column;
  task.w.panels = w.panel(panel);
  if (items.has_scratch) task.scratch = scratch_[thread].data();
  task.num_panels = std::min(items.panels, w.num_panels() - panel);
  if (task.y.bias != nullptr) task.y.bias += column;
  if (task.y.up_bias != nullptr) task.y.up_bias += column;
  if (task.y.residual != nullptr) task.y.residual += at;
  if (!whole.y.is_tiled) task.y.data = static_cast<char*>(whole.y.data) + at * int64_t(SizeOf(whole.y.type));
  task.num_rows = std::min(items.rows, whole.num_rows - row);
  task.y.num_columns = std::min(task.num_panels * w.outputs_per_panel(), w.num_outputs() - column);
  return task;
}

void CpuLinear::SetMatrix(const CpuPackedMatrix& w, LinearTask* whole) {
  whole->w.is_gated = w.is_gated();
  whole->w.panel_elements = w.panel_elements();
  whole->cols = w.cols();
  whole->num_slices = w.num_slices();
  whole->w.group = w.group();
}

void CpuLinear::Multiply(const CpuPackedMatrix& w, InputLayout x_layout, LinearTask whole) {
  whole.x.is_tiled = MultipliesTiles(w, whole.num_rows);
  const Items items = whole.x.is_tiled ? PrepareTiles(w, x_layout, &whole) : PrepareRows(w, &whole);
  SetMatrix(w, &whole);
  const int num_row_blocks = CeilDiv(whole.num_rows, items.rows);
  const int num_items = num_row_blocks * CeilDiv(w.num_panels(), items.panels);
  const auto panel_of = [&](int item) { return item / num_row_blocks * items.panels; };
  pool_->ForEach(num_items, [&](int item, int thread) {
    LinearTask task = TaskOf(w, whole, items, item % num_row_blocks * items.rows, panel_of(item), thread);
    const int next = item + pool_->num_threads();
    if (next < num_items) task.w.next = w.panel(panel_of(next));
    kernels_.linear[int(w.format())](task);
  });
}

bool CpuLinear::IsOwnProduct(const RowGroup& group) const {
  return MultipliesTiles(*group.w, group.num_rows) || group.w->format() == WeightFormat::kInt4Units ||
         !group.w->order().empty();
}

void CpuLinear::MultiplyGroups(const std::vector<RowGroup>& groups, LinearTask whole) {
  small_groups_.clear();
  for (const RowGroup& group : groups) {
    if (!IsOwnProduct(group)) {
      small_groups_.push_back(group);
      continue;
    }
    const CpuPackedMatrix& w = *group.w;
    LinearTask own = whole;
    own.x.data = static_cast<const char*>(whole.x.data) + MatrixBytes(group.first_row, w.cols(), SizeOf(InputType(w)));
    own.y.data = static_cast<char*>(whole.y.data) + MatrixBytes(group.first_row, w.num_outputs(), SizeOf(whole.y.type));
    own.num_rows = group.num_rows;
    SetBias(w, group.bias, &own);
    Multiply(w, InputLayout::kRows, own);
  }
  if (small_groups_.empty()) return;

  const CpuPackedMatrix& first = *small_groups_.front().w;
  Items items = PrepareRows(first, &whole);
  SetMatrix(first, &whole);
  items.panels =
      PanelsPerItem(first.num_panels() * int(small_groups_.size()), /*num_row_blocks=*/1, pool_->num_threads());
  group_items_.clear();
  for (int group = 0; group < int(small_groups_.size()); ++group) {
    const int begin = small_groups_[group].first_row, end = begin + small_groups_[group].num_rows;
    for (int panel = 0; panel < first.num_panels(); panel += items.panels) {
      for (int row = begin; row < end; row += items.rows) group_items_.push_back({group, row, panel});
    }
  }
  const int num_items = int(group_items_.size());
  pool_->ForEach(num_items, [&](int i, int thread) {
    const GroupItem& item = group_items_[i];
    const RowGroup& group = small_groups_[item.group];
    LinearTask own = whole;
    SetBias(*group.w, group.bias, &own);
    LinearTask task = TaskOf(*group.w, own, items, item.row, item.panel, thread);
    task.num_rows = std::min(items.rows, group.first_row + group.num_rows - item.row);
    if (const int next = i + pool_->num_threads(); next < num_items) {
      task.w.next = small_groups_[group_items_[next].group].w->panel(group_items_[next].panel);
    }
    kernels_.linear[int(group.w->format())](task);
  });
}

}  // namespace quire::cpu
