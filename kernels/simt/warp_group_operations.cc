// SPDX-License-Identifier: Apache-2.0

#include "kernels/simt/warp_group_operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/fp8.h"
#include "kernels/half_float.h"

namespace quire::simt {
namespace {

constexpr int kRows = 64;
constexpr int kDepthChunks = 2;  // Of rows in shared memory, whose columns are multiplied.
constexpr int kMaxDepth = 32;
constexpr int kMaxColumns = 128;
constexpr int kMaxChunkElements = 16;
constexpr int kPanelChunks = 8;
constexpr size_t kRowBytes = 128;
constexpr size_t kGroupRows = 8;
constexpr uint64_t kField = 0x3fff;  // A field of a descriptor: 14 bits, in units of 16 bytes.
constexpr uint64_t kPermuted = uint64_t{1} << 62;

float Widen(uint16_t bits, MmaType type) {
  return type == MmaType::kBf16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
}

int ChunkElements(MmaType type) {
  return type == MmaType::kFp8 ? 16 : 8;
}

// Reads the elements of a chunk.
void ReadChunk(const char* from, MmaType type, float* to) {
  if (type == MmaType::kFp8) {
    for (int i = 0; i < ChunkElements(type); ++i) to[i] = Fp8ToFloat(static_cast<uint8_t>(from[i]));
    return;
  }
  uint16_t bits[kMaxChunkElements / 2];
  std::memcpy(bits, from, sizeof(bits));
  for (int i = 0; i < ChunkElements(type); ++i) to[i] = Widen(bits[i], type);
}

void ReadA(const PerGroupThread<const ProductInput*>& in, const char* shared, float (&a)[kRows][kMaxDepth]) {
  const MmaType type = in[0]->type;
  if (in[0]->a_rows == nullptr) {
    const MatrixInShared matrix(in[0]->a);
    for (int row = 0; row < kRows; ++row) {
      for (int chunk = 0; chunk < kDepthChunks; ++chunk) {
        ReadChunk(shared + matrix.ChunkOffset(row, chunk), type, &a[row][chunk * ChunkElements(type)]);
      }
    }
    return;
  }
  for (int thread = 0; thread < kWarpGroupThreads; ++thread) {
    const int lane = thread % kWarpSize, first_row = thread / kWarpSize * 16 + lane / 4;
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = in[thread]->a_rows[i];
      float* const to = &a[first_row + i % 2 * 8][i / 2 * 8 + lane % 4 * 2];
      to[0] = Widen(static_cast<uint16_t>(pair), type);
      to[1] = Widen(static_cast<uint16_t>(pair >> 16), type);
    }
  }
}

void ReadB(const ProductInput& in, const char* shared, float (&b)[kMaxDepth][kMaxColumns]) {
  const MatrixInShared matrix(in.b);
  const int chunk_elements = ChunkElements(in.type);
  float elements[kMaxChunkElements];
  if (in.is_b_by_rows) {
    for (int k = 0; k < kDepthChunks * chunk_elements; ++k) {
      for (int chunk = 0; chunk < in.num_columns / chunk_elements; ++chunk) {
        ReadChunk(shared + matrix.ChunkOffset(k, chunk), in.type, &b[k][chunk * chunk_elements]);
      }
    }
    return;
  }
  for (int column = 0; column < in.num_columns; ++column) {
    for (int chunk = 0; chunk < kDepthChunks; ++chunk) {
      ReadChunk(shared + matrix.ChunkOffset(column, chunk), in.type, elements);
      for (int i = 0; i < chunk_elements; ++i) b[chunk * chunk_elements + i][column] = elements[i];
    }
  }
}

// Adds products of FP8 to a sum as the tensor cores do. They align all these numbers with the largest one, and cut off
// what is below 2^-13 of the power of two in it.
float AddFp8Products(const float (&a)[kMaxDepth], const float (&b)[kMaxDepth][kMaxColumns], int column, float sum) {
  float products[kMaxDepth], exact = sum, largest = std::fabs(sum);
  for (int k = 0; k < kMaxDepth; ++k) {
    products[k] = a[k] * b[k][column];
    exact += products[k];
    largest = std::max(largest, std::fabs(products[k]));
  }
  if (!std::isfinite(exact) || largest == 0) return exact;
  const float unit = std::ldexp(1.0f, std::ilogb(largest) - 13), units_of_one = 1 / unit;
  float units = std::trunc(sum * units_of_one);
  for (const float product : products) units += std::trunc(product * units_of_one);
  return units * unit;
}

void MultiplyMatrices(const float (&a)[kRows][kMaxDepth], const float (&b)[kMaxDepth][kMaxColumns], int depth,
                      int num_columns, float (&product)[kRows][kMaxColumns]) {
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < num_columns; ++column) product[row][column] = 0;
    for (int k = 0; k < depth; ++k) {
      for (int column = 0; column < num_columns; ++column) product[row][column] += a[row][k] * b[k][column];
    }
  }
}

}  // namespace

MatrixInShared::MatrixInShared(uint64_t descriptor)
    : start((descriptor & kField) * 16),
      panel_bytes((descriptor >> 16 & kField) * 16),
      group_bytes((descriptor >> 32 & kField) * 16) {}

uint64_t MatrixInShared::Descriptor(size_t offset, size_t panel_bytes) {
  return kPermuted | uint64_t{kGroupRows * kRowBytes / 16} << 32 | uint64_t{panel_bytes / 16} << 16 |
         (offset / 16 & kField);
}

// Bits 7 to 9 of the address are the row in a group of 8. They are added to the place of the chunk, without a carry.
size_t MatrixInShared::ChunkOffset(int row, int chunk) const {
  const size_t plain = start + chunk / kPanelChunks * panel_bytes + chunk % kPanelChunks * size_t{16} +
                       row / kGroupRows * group_bytes + row % kGroupRows * kRowBytes;
  return plain ^ (plain >> 3 & 0x70);
}

void ExecuteProduct(const PerGroupThread<const ProductInput*>& in, const char* shared, std::vector<float>* d) {
  static thread_local float a[kRows][kMaxDepth], b[kMaxDepth][kMaxColumns], product[kRows][kMaxColumns];
  const int num_columns = in[0]->num_columns, depth = kDepthChunks * ChunkElements(in[0]->type);
  const bool is_fp8 = in[0]->type == MmaType::kFp8;
  ReadA(in, shared, a);
  ReadB(*in[0], shared, b);
  if (!is_fp8) MultiplyMatrices(a, b, depth, num_columns, product);
  for (int thread = 0; thread < kWarpGroupThreads; ++thread) {
    const int lane = thread % kWarpSize, first_row = thread / kWarpSize * 16 + lane / 4;
    float* const own = d->data() + thread * (num_columns / 2);
    for (int i = 0; i < num_columns / 2; ++i) {
      const int row = first_row + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const float earlier = in[thread]->adds ? own[i] : 0;
      own[i] = is_fp8 ? AddFp8Products(a[row], b, column, earlier) : earlier + product[row][column];
    }
  }
}

}  // namespace quire::simt
