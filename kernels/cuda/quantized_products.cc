// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/quantized_products.h"

#include <algorithm>

#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/product_check.h"
#include "kernels/cuda/quantized_product.h"
#include "kernels/cuda/row_kernels.h"
#include "kernels/cuda/split_sum.h"

namespace quire::cuda {
QuantizedProducts::QuantizedProducts(Device* device, const KernelTable* kernels, DataType element, bool exact,
                                     size_t slice_bytes, int most_packed)
    : device_(device),
      kernels_(*kernels),
      element_(element),
      exact_(exact),
      slice_bytes_(slice_bytes),
      most_packed_(most_packed),
      partial_(device, "sums of quantized products"),
      tickets_(device, "tickets of quantized products"),
      dequantized_(device, "dequantized weights"),
      ordered_x_(device, "inputs of quantized products") {}

const QuantizedKernels& QuantizedProducts::KernelsFor(QuantizedFormat format) const {
  switch (format) {
    case QuantizedFormat::kInt8:
      return kernels_.int8;
    case QuantizedFormat::kFp8:
      return kernels_.fp8;
    case QuantizedFormat::kInt4:
    case QuantizedFormat::kInt4Float32:
    case QuantizedFormat::kInt4BFloat16:
      break;
  }
  return kernels_.int4;
}

const uint16_t* QuantizedProducts::InOrderOf(const QuantizedCudaMatrix& w, const uint16_t* x, int num_tokens) {
  if (w.order() == nullptr) return x;
  constexpr int kElements = 8;  // Elements for each thread.
  const int64_t count = int64_t{num_tokens} * w.cols();
  uint16_t* const ordered = ordered_x_.Reserve<uint16_t>(count);
  device_->Launch(
      kernels_.gather_columns,
      GatherColumnsArgs{.x = x, .columns = w.order(), .y = ordered, .num_rows = num_tokens, .dim = w.cols()},
      NumBlocks(count / kElements, kernels_.gather_columns.num_threads));
  return ordered;
}

void QuantizedProducts::Multiply(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y,
                                 DataType y_type, bool adds_to_y) {
  if (num_tokens == 0 || w.rows() == 0) return;
  x = InOrderOf(w, x, num_tokens);
  if (!exact_ && num_tokens > most_packed_) return MultiplyDequantized(x, w, num_tokens, y, y_type, adds_to_y);
  const int at_once = exact_ ? kMostTokens : num_tokens;
  for (int first = 0; first < num_tokens; first += at_once) {
    MultiplyPacked(x + int64_t{first} * w.cols(), w, std::min(at_once, num_tokens - first),
                   static_cast<char*>(y) + int64_t{first} * w.rows() * int64_t(SizeOf(y_type)), y_type, adds_to_y);
  }
}

void QuantizedProducts::MultiplyPacked(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y,
                                       DataType y_type, bool adds_to_y) {
  constexpr int kElements = 8;  // Elements for each thread.
  const int kernel = QuantizedKernels::ProductFor(num_tokens);
  // The number of tokens does not count in exact products, which have one block of tokens.
  const ProductGrid grid = {.num_column_blocks = w.weights().num_blocks,
                            .num_row_blocks = CeilDiv(w.rows(), kRowsOfProductBlock),
                            .block_tokens = QuantizedKernels::kTokens[kernel],
                            .num_multiprocessors = device_->num_multiprocessors()};
  const ProductSplits splits = grid.SplitsOf(num_tokens);
  const bool joins_splits = grid.block_tokens <= QuantizedKernels::kMostJoinedTokens;
  const int partial_rows = joins_splits ? grid.num_row_blocks * kRowsOfProductBlock : w.rows();
  const int64_t stride = grid.SplitStride(num_tokens, partial_rows);
  float* const partial = partial_.Reserve<float>(grid.MostSums(num_tokens, partial_rows));
  device_->Launch(KernelsFor(w.format()).products[kernel],
                  QuantizedProductArgs{.x = x,
                                       .w = w.weights(),
                                       .y = y,
                                       .partial = partial,
                                       .split_stride = stride,
                                       .partial_rows = partial_rows,
                                       .num_tokens = num_tokens,
                                       .num_row_blocks = grid.num_row_blocks,
                                       .num_splits = splits.count,
                                       .blocks_per_split = splits.blocks,
                                       .tickets = tickets_.Reserve<uint32_t>(grid.num_row_blocks),
                                       .y_is_float = y_type == DataType::kFloat32,
                                       .adds_to_y = adds_to_y},
                  grid.num_row_blocks * splits.count * grid.NumTokenBlocks(num_tokens));
  if (splits.count == 1 || joins_splits) return;
  device_->Launch(kernels_.split_sum,
                  SplitSumArgs{.partial = partial,
                               .y = y,
                               .split_stride = stride,
                               .count = int64_t{num_tokens} * partial_rows,
                               .num_splits = splits.count,
                               .y_is_float = y_type == DataType::kFloat32,
                               .adds_to_y = adds_to_y},
                  NumBlocks(stride / kElements, kernels_.split_sum.num_threads));
}

void QuantizedProducts::MultiplyDequantized(const uint16_t* x, const QuantizedCudaMatrix& w, int num_tokens, void* y,
                                            DataType y_type, bool adds_to_y) {
  const Kernel<DequantizeArgs>& kernel = KernelsFor(w.format()).dequantize;
  const int num_tiles = CeilDiv(w.rows(), kWeightTileRows);
  const int64_t tile_bytes = int64_t{kWeightTileRows} * w.cols() * int64_t(sizeof(uint16_t));
  const int num_slices = int(CeilDiv(int64_t{num_tiles}, std::max<int64_t>(1, int64_t(slice_bytes_) / tile_bytes)));
  const int tiles_of_slice = CeilDiv(num_tiles, num_slices);
  uint16_t* const slice = dequantized_.Reserve<uint16_t>(int64_t{tiles_of_slice} * kWeightTileRows * w.cols());
  for (int first = 0; first < num_tiles; first += tiles_of_slice) {
    const int tiles = std::min(tiles_of_slice, num_tiles - first), first_row = first * kWeightTileRows;
    device_->Launch(kernel, DequantizeArgs{.w = w.weights(), .y = slice, .first_tile = first, .num_tiles = tiles},
                    NumBlocks(int64_t{tiles} * w.weights().num_blocks, kernel.num_threads / simt::kWarpSize));
    device_->Multiply({.x = x,
                       .w = slice,
                       .y = static_cast<char*>(y) + int64_t{first_row} * int64_t(SizeOf(y_type)),
                       .num_rows = num_tokens,
                       .num_columns = std::min(tiles * kWeightTileRows, w.rows() - first_row),
                       .depth = w.cols(),
                       .element = element_,
                       .y_type = y_type,
                       .adds_to_y = adds_to_y,
                       .y_stride = w.rows()});
  }
}

BackendStatus QuantizedProducts::Check(const QuantizedCudaMatrix& w, const QuantizedMatrixView* matrices,
                                       int num_matrices) {
  const QuantizedKernels& kernels = KernelsFor(w.format());
  if (!checked_.insert(kernels.dequantize.entry).second) return BackendStatus::Ok();
  const ProductCheck check(device_, element_, matrices, num_matrices);
  for (const int num_tokens : QuantizedKernels::kTokens) {
    // One token less than the most has a token that is missing.
    const BackendStatus status =
        check.Run(num_tokens - 1, ProductFormula::kExactWeights, [&](const uint16_t* x, float* y) {
          MultiplyPacked(InOrderOf(w, x, num_tokens - 1), w, num_tokens - 1, y, DataType::kFloat32, false);
        });
    if (!status.ok()) return status;
  }
  // The exact mode has no use for the other kernel.
  if (exact_) return BackendStatus::Ok();
  constexpr int kFewTokens = 5;
  return check.Run(kFewTokens, ProductFormula::kRoundedWeights, [&](const uint16_t* x, float* y) {
    MultiplyDequantized(InOrderOf(w, x, kFewTokens), w, kFewTokens, y, DataType::kFloat32, false);
  });
}

}  // namespace quire::cuda
