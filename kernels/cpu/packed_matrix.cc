// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/table/kernel_table.h"
#include "kernels/half_float.h"

namespace quire::cpu {
namespace {

// Returns the offset of element (row, k) in a panel; see weight_panels.h.
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

// Stores a row of whole numbers of 8 bits and its scale.
void PackInt8(const QuantizedMatrixView& matrix, int from_row, int row, char* panel) {
  memcpy(panel + row * sizeof(float), &matrix.scales[from_row], sizeof(float));
  const int8_t* from = matrix.values + int64_t{from_row} * matrix.cols;
  auto* to = reinterpret_cast<uint8_t*>(panel + kInt8ScaleBytes) + row * kInt8QuadColumns;
  for (int k = 0; k < matrix.cols; ++k) {
    to[k / kInt8QuadColumns * (kPanelColumns * kInt8QuadColumns) + k % kInt8QuadColumns] =
        uint8_t(from[k] + kInt8Offset);
  }
}

// Stores a row of whole numbers of 4 bits with its scales and zero points.
void PackInt4(const QuantizedMatrixView& matrix, int from_row, int row, char* panel) {
  const int num_groups = (matrix.cols + matrix.group - 1) / matrix.group;
  const int8_t* from = matrix.values + int64_t{from_row} * matrix.cols;
  for (int group = 0; group < num_groups; ++group, panel += Int4GroupBytes(matrix.group)) {
    const int64_t at = int64_t{from_row} * num_groups + group;
    memcpy(panel + row * sizeof(float), &matrix.scales[at], sizeof(float));
    memcpy(panel + kPanelColumns * sizeof(float) + row, &matrix.zeros[at], 1);
    char* to = panel + kInt4HeaderBytes + row * sizeof(uint32_t);
    const int end = std::min((group + 1) * matrix.group, matrix.cols);
    for (int k = group * matrix.group; k < end; k += kInt4LineColumns, to += kPanelColumns * sizeof(uint32_t)) {
      uint32_t word = 0;
      const int n = std::min(kInt4LineColumns, end - k);
      for (int i = 0; i < n; ++i) word |= uint32_t(from[k + i] & 15) << (i % 4 * 8 + i / 4 * 4);
      memcpy(to, &word, sizeof(word));
    }
  }
}

// The same for products of bfloat16. After the last column come weights of 0, as far as a zero point can say that,
// because inputs of 0 multiply them.
void PackInt4Units(const QuantizedMatrixView& matrix, int from_row, int row, char* panel) {
  const int num_groups = (matrix.cols + matrix.group - 1) / matrix.group;
  const int units_per_column = matrix.group / kInt4UnitColumns;
  const int8_t* from = matrix.values + int64_t{from_row} * matrix.cols;
  for (int group = 0; group < num_groups; ++group, panel += Int4GroupBytes(matrix.group), from += matrix.group) {
    const int64_t at = int64_t{from_row} * num_groups + group;
    const uint8_t zero = matrix.zeros[at];
    memcpy(panel + row * sizeof(float), &matrix.scales[at], sizeof(float));
    memcpy(panel + kPanelColumns * sizeof(float) + row, &zero, 1);
    const int num_columns = std::min(matrix.group, matrix.cols - group * matrix.group);
    for (int k = 0; k < matrix.group; ++k) {
      const int unit = row * units_per_column + k / kInt4UnitColumns, lane = k % kInt4UnitColumns;
      const int value = k < num_columns ? from[k] & 15 : std::min<int>(zero, 15);
      char* const to = panel + kInt4HeaderBytes + unit / kInt4LineUnits * kInt4LineBytes + lane * sizeof(uint16_t);
      uint16_t word;
      memcpy(&word, to, sizeof(word));
      word = uint16_t(word | value << unit % kInt4LineUnits * 4);
      memcpy(to, &word, sizeof(word));
    }
  }
}

// Stores a row of numbers of FP8 with its scales. Byte i of a group of 16 bytes is of column i % 8 / 2.
void PackFp8(const QuantizedMatrixView& matrix, int from_row, int row, char* panel) {
  const int num_groups = (matrix.cols + matrix.group - 1) / matrix.group;
  const int8_t* from = matrix.values + int64_t{from_row} * matrix.cols;
  constexpr int kHalf = kPanelColumns / 2;
  const int first = row / kHalf * kFp8LineBytes + row % kHalf / 4 * 16 + row % 4 * 2;
  for (int group = 0; group < num_groups; ++group, panel += Fp8GroupBytes(matrix.group)) {
    memcpy(panel + row * sizeof(float), &matrix.scales[int64_t{from_row} * num_groups + group], sizeof(float));
    char* const to = panel + kFp8HeaderBytes + first;
    const int begin = group * matrix.group, n = std::min(matrix.group, matrix.cols - begin);
    for (int k = 0; k < n; ++k) {
      to[k / kFp8LineColumns * kFp8LineColumns * kPanelColumns + k / 2 % 2 * 8 + k % 2] = char(from[begin + k]);
    }
  }
}

// The place of a number of a column in a line: a byte, and its lowest bit in it; and where its upper bits are. They
// count from the four bytes of the column.
struct LinePlace {
  int byte;
  int shift;
  int upper_byte;
  int upper_shift;
};
template <BlockType kType>
constexpr LinePlace PlaceInLine(int k) {
  if (kType == BlockType::kQ8_0) return {.byte = k, .shift = 0, .upper_byte = 0, .upper_shift = 0};
  const int quad = k / 4;
  return {.byte = quad / 2 * kQuadBytes + k % 4,
          .shift = quad % 2 * 4,
          .upper_byte = BlockPanelOf(kType).line_bytes - kQuadBytes + k % 4,
          .upper_shift = quad * (NumberBits(kType) - 4)};
}
// Calls f<type>() with the type as a constant.
template <typename F>
void WithBlockType(BlockType type, F&& f) {
  switch (type) {
    case BlockType::kQ8_0:
      return f.template operator()<BlockType::kQ8_0>();
    case BlockType::kQ4_K:
      return f.template operator()<BlockType::kQ4_K>();
    case BlockType::kQ5_K:
      return f.template operator()<BlockType::kQ5_K>();
    case BlockType::kQ6_K:
      return f.template operator()<BlockType::kQ6_K>();
    case BlockType::kIQ4_NL:
      return f.template operator()<BlockType::kIQ4_NL>();
    case BlockType::kMXFP4:
      return f.template operator()<BlockType::kMXFP4>();
  }
}
// The place of the four bytes of a row in a line of a unit. `line` counts the lines of all groups.
int64_t LineAt(const BlockPanel& layout, int line, int row) {
  constexpr int kHalf = kPanelColumns / 2;
  return layout.header_bytes() + int64_t{line * 2 + row / kHalf} * layout.line_bytes + row % kHalf * 4;
}
// The place of the small scale or minimum of a group of a row behind `offset`.
int SmallAt(int offset, int group, int row) {
  return offset + (group / 2 * kPanelColumns + row) * 2 + group % 2;
}

constexpr bool HasPackedBytes(BlockType type) {
  return BlockPanelOf(type).unit_bytes() == kPanelColumns * ShapeOf(type).packed_bytes;
}
static_assert(HasPackedBytes(BlockType::kQ8_0) && HasPackedBytes(BlockType::kQ4_K) &&
              HasPackedBytes(BlockType::kQ5_K) && HasPackedBytes(BlockType::kQ6_K) &&
              HasPackedBytes(BlockType::kIQ4_NL) && HasPackedBytes(BlockType::kMXFP4));

// The type of scales in panels, which holds them exactly.
template <BlockType kType>
using PanelScale = std::conditional_t<kType == BlockType::kMXFP4, BFloat16, Float16>;

template <typename T>
void StoreAs(float value, uint8_t* to) {
  T stored;
  FromFloat(value, &stored);
  memcpy(to, &stored, sizeof(stored));
}

// The code of each number, as a byte.
struct NumberCodes {
  uint8_t of[256];
};
template <BlockType kType>
constexpr NumberCodes CodesOfNumbers() {
  NumberCodes codes{};
  for (int code = 15; code >= 0; --code) codes.of[uint8_t(CodedNumbers(kType)[code])] = uint8_t(code);
  return codes;
}

// Returns what a panel holds for a number.
template <BlockType kType>
int BitsOf(int8_t number) {
  if constexpr (CodedNumbers(kType) == nullptr)
    return number + NumberOffset(kType);
  else {
    static constexpr NumberCodes kCodes = CodesOfNumbers<kType>();
    return kCodes.of[uint8_t(number)];
  }
}
template <BlockType kType>
int NumberOf(int bits) {
  if constexpr (CodedNumbers(kType) == nullptr)
    return bits - NumberOffset(kType);
  else
    return CodedNumbers(kType)[bits];
}

template <BlockType kType>
void PackBlock(const BlockNumbers& block, int row, uint8_t* unit) {
  constexpr BlockPanel kLayout = BlockPanelOf(kType);
  StoreAs<PanelScale<kType>>(block.scale, unit + row * sizeof(Float16));
  if (kLayout.has_minima) StoreAs<Float16>(block.minimum, unit + kLayout.minima() + row * sizeof(Float16));
  for (int group = 0; kLayout.num_groups() > 1 && group < kLayout.num_groups(); ++group) {
    unit[SmallAt(kLayout.small_scales(), group, row)] = uint8_t(block.scales[group]);
    if (kLayout.has_minima) unit[SmallAt(kLayout.small_minima(), group, row)] = block.minima[group];
  }
  for (int k = 0; k < kLayout.unit; ++k) {
    uint8_t* const line = unit + LineAt(kLayout, k / kLayout.line_columns, row);
    const LinePlace place = PlaceInLine<kType>(k % kLayout.line_columns);
    const int number = BitsOf<kType>(block.numbers[k]);
    if (kType == BlockType::kQ8_0) {
      line[place.byte] = uint8_t(number);
      continue;
    }
    line[place.byte] = uint8_t(line[place.byte] | (number & 15) << place.shift);
    if (NumberBits(kType) > 4)
      line[place.upper_byte] = uint8_t(line[place.upper_byte] | number >> 4 << place.upper_shift);
  }
}

// Stores a row of blocks. REQUIRES: the panel is zero there.
void PackBlocks(const BlockMatrixView& matrix, int from_row, int row, char* panel) {
  const BlockShape shape = ShapeOf(matrix.type);
  const BlockPanel layout = BlockPanelOf(matrix.type);
  const int num_units = matrix.cols / layout.unit;
  const uint8_t* from = matrix.blocks + int64_t{from_row} * num_units * shape.bytes;
  for (int i = 0; i < num_units; ++i, from += shape.bytes, panel += layout.unit_bytes()) {
    BlockNumbers block;
    UnpackBlock(matrix.type, from, &block);
    WithBlockType(matrix.type,
                  [&]<BlockType kType>() { PackBlock<kType>(block, row, reinterpret_cast<uint8_t*>(panel)); });
  }
}

// Writes a row of a unit as float32.
template <BlockType kType>
void CopyUnit(const uint8_t* unit, int row, float* y) {
  constexpr BlockPanel kLayout = BlockPanelOf(kType);
  const auto half_at = [&]<typename Half>(int offset, Half half) {
    memcpy(&half, unit + offset + row * sizeof(half), sizeof(half));
    return ToFloat(half);
  };
  const auto small_at = [&](int offset, int group) {
    return kLayout.num_groups() == 1 ? 1.0f : float(int8_t(unit[SmallAt(offset, group, row)]));
  };
  for (int group = 0; group < kLayout.num_groups(); ++group) {
    const float scale = half_at(0, PanelScale<kType>{}) * small_at(kLayout.small_scales(), group);
    const float minimum =
        kLayout.has_minima ? half_at(kLayout.minima(), Float16{}) * small_at(kLayout.small_minima(), group) : 0;
    for (int k = group * kLayout.group; k < (group + 1) * kLayout.group; ++k) {
      const uint8_t* const line = unit + LineAt(kLayout, k / kLayout.line_columns, row);
      const LinePlace place = PlaceInLine<kType>(k % kLayout.line_columns);
      int number = line[place.byte];
      if (kType != BlockType::kQ8_0) {
        const int upper = line[place.upper_byte] >> place.upper_shift & ((1 << (NumberBits(kType) - 4)) - 1);
        number = (number >> place.shift & 15) | upper << 4;
      }
      *y++ = scale * float(NumberOf<kType>(number)) - minimum;
    }
  }
}

// Returns the matrix that contains row `row` of the stack, and makes *row relative to that matrix.
template <typename View>
const View& FindMatrix(const View* matrices, int* row) {
  while (*row >= matrices->rows) *row -= (matrices++)->rows;
  return *matrices;
}

}  // namespace

WeightFormat FormatFor(QuantizedFormat format, const KernelTable& kernels) {
  switch (format) {
    case QuantizedFormat::kInt8:
      break;
    case QuantizedFormat::kInt4:
      return WeightFormat::kInt4;
    case QuantizedFormat::kInt4Float32:
      return WeightFormat::kInt4Float32;
    case QuantizedFormat::kInt4BFloat16:
      for (const WeightFormat own : {WeightFormat::kInt4Units, WeightFormat::kInt4BFloat16}) {
        if (kernels.linear[int(own)] != nullptr) return own;
      }
      return WeightFormat::kInt4Float32;
    case QuantizedFormat::kFp8:
      return WeightFormat::kFp8;
  }
  return WeightFormat::kInt8;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const MatrixView* matrices, int num_matrices, ThreadPool* pool) {
  return Make(matrices, num_matrices, /*is_gated=*/false, pool);
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::MakeGated(const MatrixView& gate, const MatrixView& up,
                                                            ThreadPool* pool) {
  const MatrixView matrices[] = {gate, up};
  return Make(matrices, 2, /*is_gated=*/true, pool);
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const QuantizedMatrixView* matrices, int num_matrices,
                                                       WeightFormat format, ThreadPool* pool) {
  return Make(matrices, num_matrices, format, /*is_gated=*/false, pool);
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::MakeGated(const QuantizedMatrixView& gate,
                                                            const QuantizedMatrixView& up, WeightFormat format,
                                                            ThreadPool* pool) {
  const QuantizedMatrixView matrices[] = {gate, up};
  return Make(matrices, 2, format, /*is_gated=*/true, pool);
}

int CpuPackedMatrix::RowAt(int panel, int lane) const {
  const int output = panel * outputs_per_panel() + lane % outputs_per_panel();
  if (output >= num_outputs()) return -1;
  return lane < outputs_per_panel() ? output : num_outputs() + output;
}

template <typename PackRow>
bool CpuPackedMatrix::Fill(ThreadPool* pool, PackRow&& pack) {
  memory_ = Memory(panel_elements() * num_panels() * element_bytes());
  if (memory_.data() == nullptr) return false;
  pool->ForEach(num_panels(), [&](int index, int) {
    for (int lane = 0; lane < kPanelColumns; ++lane) {
      const int row = RowAt(index, lane);
      if (row >= 0) pack(const_cast<void*>(panel(index)), lane, row);
    }
  });
  return true;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const MatrixView* matrices, int num_matrices, bool is_gated,
                                                       ThreadPool* pool) {
  int rows = 0;
  DataType type = matrices[0].type;
  for (int i = 0; i < num_matrices; ++i) {
    rows += matrices[i].rows;
    if (matrices[i].type != type) type = DataType::kFloat32;
  }
  std::unique_ptr<CpuPackedMatrix> packed(
      new CpuPackedMatrix(rows, matrices[0].cols, WeightFormat(type), /*group=*/0, matrices[0].num_slices, is_gated));
  const bool has_memory = packed->Fill(pool, [&](void* panel, int lane, int row) {
    const MatrixView& matrix = FindMatrix(matrices, &row);
    WithType(type, [&]<typename To>(To*) {
      WithType(matrix.type, [&]<typename From>(From*) {
        PackRow(static_cast<const From*>(matrix.data) + int64_t{row} * matrix.cols, matrix.cols, lane,
                static_cast<To*>(panel));
      });
    });
  });
  return has_memory ? std::move(packed) : nullptr;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const QuantizedMatrixView* matrices, int num_matrices,
                                                       WeightFormat format, bool is_gated, ThreadPool* pool) {
  int rows = 0;
  for (int i = 0; i < num_matrices; ++i) rows += matrices[i].rows;
  const bool has_groups = HasGroups(matrices[0].format);
  const int group = has_groups ? matrices[0].group : 0;
  const int num_slices = has_groups ? matrices[0].num_slices : 1;
  std::unique_ptr<CpuPackedMatrix> packed(
      new CpuPackedMatrix(rows, matrices[0].cols, format, group, num_slices, is_gated));
  if (has_groups && matrices[0].order != nullptr) {
    packed->order_.assign(matrices[0].order, matrices[0].order + matrices[0].cols);
  }
  const auto pack = format == WeightFormat::kFp8         ? PackFp8
                    : format == WeightFormat::kInt4Units ? PackInt4Units
                    : has_groups                         ? PackInt4
                                                         : PackInt8;
  const bool has_memory = packed->Fill(pool, [&](void* panel, int lane, int row) {
    const QuantizedMatrixView& matrix = FindMatrix(matrices, &row);
    pack(matrix, row, lane, static_cast<char*>(panel));
  });
  return has_memory ? std::move(packed) : nullptr;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const BlockMatrixView* matrices, int num_matrices,
                                                       ThreadPool* pool) {
  const auto end_of_type = [&](int begin) {
    int end = begin + 1;
    while (end < num_matrices && matrices[end].type == matrices[begin].type) ++end;
    return end;
  };
  if (end_of_type(0) == num_matrices) return Make(matrices, num_matrices, /*is_gated=*/false, pool);
  std::unique_ptr<CpuPackedMatrix> stack(new CpuPackedMatrix(/*rows=*/0, matrices[0].cols, FormatOf(matrices[0].type),
                                                             /*group=*/0, matrices[0].num_slices, /*is_gated=*/false));
  for (int begin = 0; begin < num_matrices;) {
    const int end = end_of_type(begin);
    stack->parts_.push_back(Make(&matrices[begin], end - begin, /*is_gated=*/false, pool));
    if (stack->parts_.back() == nullptr) return nullptr;
    stack->rows_ += stack->parts_.back()->rows_;
    begin = end;
  }
  return stack;
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::MakeGated(const BlockMatrixView& gate, const BlockMatrixView& up,
                                                            ThreadPool* pool) {
  const BlockMatrixView matrices[] = {gate, up};
  return Make(matrices, 2, /*is_gated=*/true, pool);
}

std::unique_ptr<CpuPackedMatrix> CpuPackedMatrix::Make(const BlockMatrixView* matrices, int num_matrices, bool is_gated,
                                                       ThreadPool* pool) {
  int rows = 0;
  for (int i = 0; i < num_matrices; ++i) rows += matrices[i].rows;
  const BlockType type = matrices[0].type;
  std::unique_ptr<CpuPackedMatrix> packed(
      new CpuPackedMatrix(rows, matrices[0].cols, FormatOf(type), /*group=*/0, matrices[0].num_slices, is_gated));
  const bool has_memory = packed->Fill(pool, [&](void* panel, int lane, int row) {
    const BlockMatrixView& matrix = FindMatrix(matrices, &row);
    PackBlocks(matrix, row, lane, static_cast<char*>(panel));
  });
  return has_memory ? std::move(packed) : nullptr;
}

const void* CpuPackedMatrix::panel(int index) const {
  return static_cast<const char*>(memory_.data()) + index * panel_elements() * int64_t(element_bytes());
}

void CpuPackedMatrix::CopyRow(int row, float* y) const {
  if (IsInBlocks(format_)) {
    WithBlockType(BlockTypeOf(format_), [&]<BlockType kType>() {
      constexpr BlockPanel kLayout = BlockPanelOf(kType);
      const auto* unit = static_cast<const uint8_t*>(panel(row / kPanelColumns));
      for (int k = 0; k < cols_; k += kLayout.unit, unit += kLayout.unit_bytes()) {
        CopyUnit<kType>(unit, row % kPanelColumns, y + k);
      }
    });
    return;
  }
  WithType(DataType(format_), [&]<typename T>(T*) {
    const T* from = static_cast<const T*>(panel(row / kPanelColumns));
    for (int k = 0; k < cols_; ++k) y[k] = ToFloat(from[PanelOffset<T>(row % kPanelColumns, k)]);
  });
}

}  // namespace quire::cpu
