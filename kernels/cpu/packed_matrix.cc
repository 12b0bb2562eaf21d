#include "kernels/cpu/packed_matrix.h"

#include <algorithm>

#include "kernels/cpu/kernel_table.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

// Returns the offset of element (row, k) in a panel; see kernel_table.h.
template <typename T>
int64_t PanelOffset(int row, int k) {
  return int64_t{k} * kPanelColumns + row;
}
template <>
int64_t PanelOffset<BFloat16>(int row, int k) {
  return (int64_t{k / 2} * kPanelColumns + row) * 2 + k % 2;
}

// Calls f with a null pointer whose element type corresponds to `type`.
template <typename F>
auto WithType(DataType type, F&& f) {
  switch (type) {
    case DataType::kBFloat16:
      return f(static_cast<BFloat16*>(nullptr));
    case DataType::kFloat16:
      return f(static_cast<Float16*>(nullptr));
    case DataType::kFloat32:
      break;
  }
  return f(static_cast<float*>(nullptr));
}

template <typename From, typename To>
void PackRow(const From* from, int cols, int row, To* panel) {
  for (int k = 0; k < cols; ++k) {
    if constexpr (std::is_same_v<From, To>) {
      panel[PanelOffset<To>(row, k)] = from[k];
    } else {
      FromFloat(ToFloat(from[k]), &panel[PanelOffset<To>(row, k)]);
    }
  }
}

// Returns the matrix that contains row `row` of the stack, and makes *row relative to that matrix.
const MatrixView& FindMatrix(const MatrixView* matrices, int* row) {
  while (*row >= matrices->rows) *row -= (matrices++)->rows;
  return *matrices;
}

}  // namespace

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool) {
  return Make(matrices, num_matrices, /*is_gated=*/false, pool);
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::MakeGated(const MatrixView& gate, const MatrixView& up,
                                                            ThreadPool* pool) {
  const MatrixView matrices[] = {gate, up};
  return Make(matrices, 2, /*is_gated=*/true, pool);
}

int CpuPackedMatrix::RowAt(int panel, int lane) const {
  const int output = panel * outputs_per_panel() + lane % outputs_per_panel();
  if (output >= num_outputs()) return -1;
  return lane < outputs_per_panel() ? output : num_outputs() + output;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const MatrixView* matrices, int num_matrices, bool is_gated,
                                                       ThreadPool* pool) {
  int rows = 0;
  DataType type = matrices[0].type;
  for (int i = 0; i < num_matrices; ++i) {
    rows += matrices[i].rows;
    if (matrices[i].type != type) type = DataType::kFloat32;
  }
  std::unique_ptr<CpuPackedMatrix> packed(new CpuPackedMatrix(rows, matrices[0].cols, type, is_gated));
  packed->memory_ = Memory(packed->panel_elements() * packed->num_panels() * SizeOf(type));
  if (packed->memory_.data() == nullptr) return nullptr;

  WithType(type, [&]<typename To>(To*) {
    pool->ForEach(packed->num_panels(), [&](int index, int) {
      To* panel = static_cast<To*>(packed->memory_.data()) + index * packed->panel_elements();
      for (int i = 0; i < kPanelColumns; ++i) {
        int row = packed->RowAt(index, i);
        if (row < 0) continue;
        const MatrixView& matrix = FindMatrix(matrices, &row);
        WithType(matrix.type, [&]<typename From>(From*) {
          PackRow(static_cast<const From*>(matrix.data) + int64_t{row} * matrix.cols, matrix.cols, i, panel);
        });
      }
    });
  });
  return packed;
}

const void* CpuPackedMatrix::panel(int index) const {
  return static_cast<const char*>(memory_.data()) + index * panel_elements() * SizeOf(type_);
}

void CpuPackedMatrix::CopyRow(int row, float* y) const {
  WithType(type_, [&]<typename T>(T*) {
    const T* from = static_cast<const T*>(panel(row / kPanelColumns));
    for (int k = 0; k < cols_; ++k) y[k] = ToFloat(from[PanelOffset<T>(row % kPanelColumns, k)]);
  });
}

}  // namespace quire::cpu
