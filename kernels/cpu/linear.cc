#include "kernels/cpu/linear.h"

#include <algorithm>
#include <cstring>

#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

constexpr int CeilDiv(int a, int b) {
  return (a + b - 1) / b;
}

// Rows of x that pass over a panel together stay in the second-level cache, beside two panels and the y of a panel.
constexpr int64_t kRowBytesPerItem = 512 << 10;
constexpr int kMinRowsPerItem = 64;
// Pieces per thread that even out threads of unequal speed.
constexpr int kItemsPerThread = 8;

int RowsPerItem(int num_rows, int64_t row_bytes) {
  constexpr int kStep = 32;  // Rows of the largest tile.
  const int most = std::max(kMinRowsPerItem, int(kRowBytesPerItem / row_bytes) / kStep * kStep);
  return CeilDiv(CeilDiv(num_rows, CeilDiv(num_rows, most)), kStep) * kStep;
}

}  // namespace

// Rounding x costs little where few rows are multiplied: too little to wake other threads for.
CpuLinear::Input CpuLinear::Prepare(const LinearArgs& args, const CpuPackedMatrix& w) {
  constexpr int64_t kMaxValuesOnOneThread = 1 << 14;
  const DataType type = kernels_.linear_input[int(w.type())];
  const int64_t cols = w.cols(), stride = w.padded_cols();
  if (type == DataType::kFloat32) return {static_cast<const char*>(args.x), cols, type};
  const size_t bytes = args.num_tokens * stride * sizeof(BFloat16);
  if (rounded_.bytes() < bytes) rounded_ = Memory(bytes);
  const auto round = [&](int64_t row) {
    BFloat16* out = static_cast<BFloat16*>(rounded_.data()) + row * stride;
    kernels_.convert[int(type)](static_cast<const float*>(args.x) + row * cols, out, int(cols));
    memset(out + cols, 0, (stride - cols) * sizeof(BFloat16));
  };
  if (args.num_tokens * cols > kMaxValuesOnOneThread) {
    pool_->ForEach(args.num_tokens, [&](int row, int) { round(row); });
  } else {
    for (int row = 0; row < args.num_tokens; ++row) round(row);
  }
  return {static_cast<const char*>(rounded_.data()), stride, type};
}

void CpuLinear::Run(const LinearArgs& args) {
  const auto& w = static_cast<const CpuPackedMatrix&>(*args.w);
  const Input x = Prepare(args, w);
  const int rows_per_item = RowsPerItem(args.num_tokens, x.stride * int64_t(SizeOf(x.type)));
  const int num_row_blocks = CeilDiv(args.num_tokens, rows_per_item);
  const int wanted_items = pool_->num_threads() * kItemsPerThread;
  // In fours, which is how many the kernel takes at once when there are few rows.
  const int panels_per_item = CeilDiv(CeilDiv(w.num_panels() * num_row_blocks, wanted_items), 4) * 4;
  const int num_panel_blocks = CeilDiv(w.num_panels(), panels_per_item);

  pool_->ForEach(num_row_blocks * num_panel_blocks, [&](int item, int) {
    const int panel = item / num_row_blocks * panels_per_item;
    const int64_t row = int64_t{item % num_row_blocks} * rows_per_item, column = int64_t{panel} * kPanelColumns;
    const int64_t at = row * w.rows() + column;
    LinearTask task = {
        .x = x.row(row),
        .panels = w.panel(panel),
        .bias = args.bias == nullptr ? nullptr : args.bias + column,
        .residual = args.residual == nullptr ? nullptr : static_cast<const float*>(args.residual) + at,
        .y = static_cast<float*>(args.y) + at,
        .x_stride = x.stride,
        .y_stride = w.rows(),
        .panel_elements = w.panel_elements(),
        .num_rows = std::min(rows_per_item, int(args.num_tokens - row)),
        .cols = w.cols(),
        .num_columns = std::min(panels_per_item * kPanelColumns, int(w.rows() - column)),
    };
    kernels_.linear[int(w.type())](task);
  });
}

}  // namespace quire::cpu
