#include "kernels/cpu/linear.h"

#include <algorithm>

#include "kernels/cpu/packed_matrix.h"

namespace quire::cpu {
namespace {

constexpr int CeilDiv(int a, int b) {
  return (a + b - 1) / b;
}

// Rows of x that pass over a panel together: they stay in the second-level cache.
constexpr int kRowsPerItem = 192;
// Pieces per thread that even out threads of unequal speed.
constexpr int kItemsPerThread = 8;

}  // namespace

void Linear(const LinearArgs& args, const KernelTable& kernels, ThreadPool* pool) {
  const auto& w = static_cast<const CpuPackedMatrix&>(*args.w);
  const int num_row_blocks = CeilDiv(args.num_tokens, kRowsPerItem);
  const int wanted_items = pool->num_threads() * kItemsPerThread;
  // In fours, which is how many the kernel takes at once when there are few rows.
  const int panels_per_item = CeilDiv(CeilDiv(w.num_panels() * num_row_blocks, wanted_items), 4) * 4;
  const int num_panel_blocks = CeilDiv(w.num_panels(), panels_per_item);

  pool->ForEach(num_row_blocks * num_panel_blocks, [&](int item, int) {
    const int panel = item / num_row_blocks * panels_per_item;
    const int64_t row = int64_t{item % num_row_blocks} * kRowsPerItem, column = int64_t{panel} * kPanelColumns;
    const int64_t at = row * w.rows() + column;
    LinearTask task = {
        .x = static_cast<const float*>(args.x) + row * w.cols(),
        .panels = w.panel(panel),
        .bias = args.bias == nullptr ? nullptr : args.bias + column,
        .residual = args.residual == nullptr ? nullptr : static_cast<const float*>(args.residual) + at,
        .y = static_cast<float*>(args.y) + at,
        .y_stride = w.rows(),
        .panel_elements = w.panel_elements(),
        .num_rows = std::min(kRowsPerItem, int(args.num_tokens - row)),
        .cols = w.cols(),
        .num_columns = std::min(panels_per_item * kPanelColumns, int(w.rows() - column)),
    };
    kernels.linear[int(w.type())](task);
  });
}

}  // namespace quire::cpu
