// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/quantized_matrix.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace quire::cuda {
namespace {

constexpr int kLanes = simt::kWarpSize;

// The rows of a tile, padded to whole blocks of columns. A missing row has zeros.
class TileRows {
 public:
  explicit TileRows(int cols) : cols_(cols), stride_(CeilDiv(cols, kBlockColumns) * kBlockColumns) {}

  void Clear() { bytes_.assign(size_t(kWeightTileRows) * stride_, 0); }
  void Set(int row, const int8_t* values) { std::memcpy(&bytes_[size_t(row) * stride_], values, cols_); }
  const uint8_t* At(int row, int k) const { return &bytes_[size_t(row) * stride_ + k]; }

 private:
  const int cols_;
  const int stride_;
  std::vector<uint8_t> bytes_;
};

// Writes the words of a lane for the step of 16 columns that begins with column k of the lane. Columns are ordered as
// in packed_weights.h.
void WriteInt4Step(const uint8_t* upper, const uint8_t* lower, uint32_t* word) {
  *word = 0;
  for (int j = 0; j < 2; ++j) {
    *word |= uint32_t(upper[j] & 15) << 16 * j | uint32_t(lower[j] & 15) << (4 + 16 * j) |
             uint32_t(upper[2 + j] & 15) << (8 + 16 * j) | uint32_t(lower[2 + j] & 15) << (12 + 16 * j);
  }
}

void WriteByteStep(const uint8_t* upper, const uint8_t* lower, uint32_t* words) {
  for (int i = 0; i < 2; ++i) {
    words[i] = uint32_t{upper[2 * i]} | uint32_t{lower[2 * i]} << 8 | uint32_t{upper[2 * i + 1]} << 16 |
               uint32_t{lower[2 * i + 1]} << 24;
  }
}

// Appends the blocks of a tile to `words`.
void PackTile(const TileRows& rows, int num_blocks, bool is_int4, std::vector<uint32_t>* words) {
  constexpr int kPieceWords = 4;  // Words of each lane.
  const int words_of_step = is_int4 ? 1 : 2;
  const int quarters_of_piece = kPieceWords / (2 * words_of_step);
  for (int block = 0; block < num_blocks; ++block) {
    for (int quarter = 0; quarter < kBlockQuarters; ++quarter) {
      if (quarter % quarters_of_piece == 0) words->resize(words->size() + kLanes * kPieceWords);
      uint32_t* const piece = words->data() + words->size() - kLanes * kPieceWords;
      for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t* const to = piece + lane * kPieceWords + quarter % quarters_of_piece * 2 * words_of_step;
        for (int step = 0; step < 2; ++step) {
          const int k = kBlockColumns * block + kQuarterColumns * quarter + 8 * (lane % 4) + 4 * step;
          const uint8_t* const upper = rows.At(lane / 4, k);
          const uint8_t* const lower = rows.At(lane / 4 + 8, k);
          is_int4 ? WriteInt4Step(upper, lower, to + step) : WriteByteStep(upper, lower, to + 2 * step);
        }
      }
    }
  }
}

}  // namespace

QuantizedCudaMatrix::QuantizedCudaMatrix(Device* device, int rows, const QuantizedMatrixView& first)
    : DeviceMatrix(rows, first.cols), device_(device), format_(first.format), has_order_(first.order != nullptr) {
  const int num_blocks = CeilDiv(first.cols, kBlockColumns);
  const int group = HasGroups(first.format) ? first.group : kBlockColumns * num_blocks;
  weights_.rows = rows;
  weights_.cols = first.cols;
  weights_.num_blocks = num_blocks;
  weights_.num_groups = CeilDiv(kBlockColumns * num_blocks, group);
  weights_.group_quarters = group / kQuarterColumns;
}

QuantizedCudaMatrix::QuantizedCudaMatrix(const QuantizedCudaMatrix& other)
    : DeviceMatrix(other.rows(), other.cols()),
      device_(other.device_),
      format_(other.format_),
      weights_(other.weights_),
      has_order_(other.has_order_) {}

size_t QuantizedCudaMatrix::value_bytes() const {
  const int block_bytes = (is_int4() ? Int4Values::kPieces : Int8Values::kPieces) * kPieceBytes;
  return num_tiles() * weights_.num_blocks * block_bytes;
}

bool QuantizedCudaMatrix::Allocate() {
  values_ = static_cast<char*>(device_->Allocate(value_bytes()));
  scales_ = static_cast<float*>(device_->Allocate(num_scales() * sizeof(float)));
  if (is_int4()) zeros_ = static_cast<uint8_t*>(device_->Allocate(num_scales()));
  if (has_order_) order_ = static_cast<int32_t*>(device_->Allocate(cols() * sizeof(int32_t)));
  weights_.values = values_;
  weights_.scales = scales_;
  weights_.zeros = zeros_;
  return values_ != nullptr && scales_ != nullptr && (zeros_ != nullptr || !is_int4()) &&
         (order_ != nullptr || !has_order_);
}

QuantizedCudaMatrix::~QuantizedCudaMatrix() {
  for (void* const memory : {static_cast<void*>(values_), static_cast<void*>(scales_), static_cast<void*>(zeros_),
                             static_cast<void*>(order_)}) {
    if (memory != nullptr) device_->Free(memory);
  }
}

std::unique_ptr<QuantizedCudaMatrix> QuantizedCudaMatrix::Pack(Device* device, const QuantizedMatrixView* matrices,
                                                               int num_matrices) {
  const int rows = StackedRows(matrices, num_matrices);
  std::unique_ptr<QuantizedCudaMatrix> result(new QuantizedCudaMatrix(device, rows, matrices[0]));
  if (!result->Allocate()) return nullptr;
  result->Upload(matrices);
  return result;
}

std::unique_ptr<QuantizedCudaMatrix> QuantizedCudaMatrix::Copy() const {
  std::unique_ptr<QuantizedCudaMatrix> copy(new QuantizedCudaMatrix(*this));
  if (!copy->Allocate()) return nullptr;
  device_->Copy(copy->values_, values_, value_bytes());
  device_->Copy(copy->scales_, scales_, num_scales() * sizeof(float));
  if (zeros_ != nullptr) device_->Copy(copy->zeros_, zeros_, num_scales());
  if (order_ != nullptr) device_->Copy(copy->order_, order_, cols() * sizeof(int32_t));
  return copy;
}

void QuantizedCudaMatrix::Upload(const QuantizedMatrixView* matrices) {
  constexpr size_t kPieceWords = size_t{1} << 20;
  const int num_groups = weights_.num_groups;
  const int groups_of_source = HasGroups(format_) ? CeilDiv(cols(), matrices[0].group) : 1;
  std::vector<float> scales(num_scales());
  std::vector<uint8_t> zeros(zeros_ != nullptr ? num_scales() : 0);
  TileRows tile(cols());
  std::vector<uint32_t> words;
  char* to = values_;
  const auto flush = [&] {
    const size_t bytes = words.size() * sizeof(uint32_t);
    device_->Copy(to, words.data(), bytes);
    device_->Synchronize();
    to += bytes;
    words.clear();
  };
  const QuantizedMatrixView* matrix = matrices;
  int row_of_matrix = 0;
  for (int row = 0; row < rows(); ++row, ++row_of_matrix) {
    if (row_of_matrix == matrix->rows) {
      ++matrix;
      row_of_matrix = 0;
    }
    const int row_of_tile = row % kWeightTileRows;
    if (row_of_tile == 0) tile.Clear();
    tile.Set(row_of_tile, matrix->values + int64_t{row_of_matrix} * cols());
    for (int group = 0; group < groups_of_source; ++group) {
      const size_t at = (size_t(row / kWeightTileRows) * num_groups + group) * kWeightTileRows + row_of_tile;
      const size_t source = size_t(row_of_matrix) * groups_of_source + group;
      scales[at] = matrix->scales[source];
      if (zeros_ != nullptr) zeros[at] = matrix->zeros[source];
    }
    if (row_of_tile + 1 < kWeightTileRows && row + 1 < rows()) continue;
    PackTile(tile, weights_.num_blocks, is_int4(), &words);
    if (words.size() >= kPieceWords) flush();
  }
  flush();
  device_->Copy(scales_, scales.data(), scales.size() * sizeof(float));
  if (zeros_ != nullptr) device_->Copy(zeros_, zeros.data(), zeros.size());
  if (order_ != nullptr) device_->Copy(order_, matrices[0].order, cols() * sizeof(int32_t));
  device_->Synchronize();
}

}  // namespace quire::cuda
