// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/warp_operations.h"

#include <algorithm>
#include <cstring>

#include "kernels/half_float.h"

namespace quire::simt {
namespace {

constexpr int kMatrixRows = 8;
constexpr int kMatrices = 4;
constexpr int kMmaRows = 16;
constexpr int kMmaColumns = 8;
constexpr int kMmaDepth = 16;
constexpr int kMmaS8Depth = 32;

float Widen(uint32_t pair, int half, MmaType type) {
  const auto bits = static_cast<uint16_t>(pair >> (16 * half));
  return type == MmaType::kBf16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}

}  // namespace

void ExecuteShuffle(const PerLane<const ShuffleInput*>& in, const PerLane<uint64_t*>& out) {
  for (int lane = 0; lane < kWarpSize; ++lane) *out[lane] = in[in[lane]->source_lane]->value;
}

void ExecuteBallot(const PerLane<const bool*>& in, const PerLane<uint32_t*>& out) {
  uint32_t bits = 0;
  for (int lane = 0; lane < kWarpSize; ++lane) bits |= uint32_t{*in[lane]} << lane;
  for (uint32_t* word : out) *word = bits;
}

void ExecuteLoadMatrix4(const PerLane<const void*>& rows, bool is_transposed, const PerLane<uint32_t*>& out) {
  for (int m = 0; m < kMatrices; ++m) {
    uint16_t matrix[kMatrixRows][kMatrixRows];
    for (int r = 0; r < kMatrixRows; ++r) std::memcpy(matrix[r], rows[m * kMatrixRows + r], sizeof(matrix[r]));
    for (int lane = 0; lane < kWarpSize; ++lane) {
      const int row = lane / 4;
      const int column = 2 * (lane % 4);
      const uint32_t low = is_transposed ? matrix[column][row] : matrix[row][column];
      const uint32_t high = is_transposed ? matrix[column + 1][row] : matrix[row][column + 1];
      out[lane][m] = low | high << 16;
    }
  }
}

int CountMatrixConflicts(const PerLane<const void*>& rows) {
  int conflicts = 0;
  for (int m = 0; m < kMatrices; ++m) {
    const auto begin = rows.begin() + m * kMatrixRows;
    int uses[kMatrixRows] = {};
    int passes = 1;
    for (int r = 0; r < kMatrixRows; ++r) {
      if (std::find(begin, begin + r, begin[r]) != begin + r) continue;
      passes = std::max(passes, ++uses[reinterpret_cast<uintptr_t>(begin[r]) / 16 % kMatrixRows]);
    }
    conflicts += passes - 1;
  }
  return conflicts;
}

void ExecuteMma(const PerLane<const MmaInput*>& in, MmaType type, const PerLane<float*>& c) {
  float a[kMmaRows][kMmaDepth];
  float b[kMmaDepth][kMmaColumns];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int group = lane / 4;
    const int pair = 2 * (lane % 4);
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 4; ++i) {
        a[group + i % 2 * 8][pair + i / 2 * 8 + half] = Widen(in[lane]->a[i], half, type);
      }
      b[pair + half][group] = Widen(in[lane]->b0, half, type);
      b[pair + 8 + half][group] = Widen(in[lane]->b1, half, type);
    }
  }
  float product[kMmaRows][kMmaColumns] = {};
  for (int row = 0; row < kMmaRows; ++row) {
    for (int k = 0; k < kMmaDepth; ++k) {
      for (int column = 0; column < kMmaColumns; ++column) product[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int i = 0; i < 4; ++i) c[lane][i] += product[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

void ExecuteMmaS8(const PerLane<const MmaInput*>& in, const PerLane<int32_t*>& c) {
  int8_t a[kMmaRows][kMmaS8Depth];
  int8_t b[kMmaColumns][kMmaS8Depth];
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const int group = lane / 4;
    const int four = 4 * (lane % 4);
    for (int i = 0; i < 4; ++i) std::memcpy(&a[group + i % 2 * 8][four + i / 2 * 16], &in[lane]->a[i], 4);
    std::memcpy(&b[group][four], &in[lane]->b0, 4);
    std::memcpy(&b[group][four + 16], &in[lane]->b1, 4);
  }
  for (int lane = 0; lane < kWarpSize; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = 2 * (lane % 4) + i % 2;
      auto sum = static_cast<uint32_t>(c[lane][i]);
      for (int k = 0; k < kMmaS8Depth; ++k) sum += static_cast<uint32_t>(a[row][k] * b[column][k]);
      c[lane][i] = static_cast<int32_t>(sum);
    }
  }
}

}  // namespace quire::simt
