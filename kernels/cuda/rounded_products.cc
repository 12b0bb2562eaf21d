// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/rounded_products.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/line_writer.h"
#include "kernels/cuda/product_check.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/rounded_product.h"
#include "kernels/cuda/scale_sums.h"

namespace quire::cuda {

RoundedProducts::RoundedProducts(Device* device, const KernelTable* kernels, DataType element, size_t sum_bytes,
                                 int most_tokens_at_once, std::optional<int> most_few_tokens)
    : device_(device),
      kernels_(*kernels),
      element_(element),
      sum_bytes_(sum_bytes),
      most_tokens_at_once_(most_tokens_at_once),
      most_few_tokens_(most_few_tokens),
      rounded_(device, "rounded inputs of products"),
      scales_(device, "scales of rounded inputs"),
      sums_(device, "sums of rounded products"),
      tickets_(device, "tickets of rounded products") {}

int RoundedProducts::RowsWithRoom(int num_tokens) {
  return CeilDiv(num_tokens, kScaleMultiple) * kScaleMultiple;
}

void RoundedProducts::Multiply(const uint16_t* x, const ByteCudaMatrix& w, int num_tokens, void* y, DataType y_type,
                               bool adds_to_y, bool has_room) {
  if (num_tokens == 0 || w.rows() == 0) return;
  const bool are_few = num_tokens <= MostFewTokens(w.format());
  const int rest = num_tokens % kScaleMultiple, whole = num_tokens - rest;
  if (w.has_blocks() && !are_few && rest != 0 && whole != 0 && !has_room && num_tokens > MostCopiedTokens(w.rows())) {
    Multiply(x, w, whole, y, y_type, adds_to_y);
    x += int64_t{whole} * w.cols();
    y = static_cast<char*>(y) + int64_t{whole} * w.rows() * int64_t(SizeOf(y_type));
    return MultiplyFew(Rounded(x, w, rest, y, y_type, adds_to_y));
  }
  Part part = Rounded(x, w, num_tokens, y, y_type, adds_to_y);
  part.has_room = has_room;
  are_few ? MultiplyFew(part) : MultiplyMany(part);
}

int RoundedProducts::MostCopiedTokens(int rows) const {
  const size_t most = sum_bytes_ / (size_t(rows) * sizeof(float));
  return int(std::min<size_t>(most, INT32_MAX)) / kScaleMultiple * kScaleMultiple;
}

RoundedProducts::Part RoundedProducts::Rounded(const uint16_t* x, const ByteCudaMatrix& w, int num_tokens, void* y,
                                               DataType y_type, bool adds_to_y) {
  const int num_rows = w.has_blocks() ? RowsWithRoom(num_tokens) : num_tokens;
  const int scales_per_row = w.has_blocks() ? w.depth() / kScaledColumns : 1;
  int8_t* const rounded = rounded_.Reserve<int8_t>(size_t(num_rows) * w.depth());
  float* const scales = scales_.Reserve<float>(size_t(num_rows) * scales_per_row);
  const RoundedProductKernels& kernels = KernelsFor(w.format(), w.has_blocks());
  if (w.has_blocks()) {
    device_->Launch(
        kernels.round_groups,
        RoundGroupsArgs{
            .x = x, .y = rounded, .scales = scales, .num_rows = num_tokens, .padded_rows = num_rows, .dim = w.depth()},
        NumBlocks(int64_t{num_rows} * scales_per_row, kRoundedGroupsPerBlock));
  } else {
    device_->Launch(
        kernels.round_rows,
        RoundRowsArgs{
            .x = x, .y = rounded, .scales = scales, .num_rows = num_tokens, .dim = w.cols(), .padded_dim = w.depth()},
        NumBlocks(num_tokens, 1));
  }
  return {.format = w.format(),
          .has_blocks = w.has_blocks(),
          .x = rounded,
          .x_scales = scales,
          .w = w.values(),
          .w_scales = w.scales(),
          .x_scale_stride = num_rows,
          .w_scale_stride = w.scale_stride(),
          .y = y,
          .num_tokens = num_tokens,
          .rows = w.rows(),
          .padded_rows = w.padded_rows(),
          .depth = w.depth(),
          .y_stride = w.rows(),
          .y_is_float = y_type == DataType::kFloat32,
          .adds_to_y = adds_to_y};
}

RoundedProducts::Part RoundedProducts::PartOf(const Part& whole, int first_token, int num_tokens, int first_row,
                                              int rows) {
  Part part = whole;
  part.x += int64_t{first_token} * whole.depth;
  part.x_scales += first_token;
  part.w += int64_t{first_row} * whole.depth;
  part.w_scales += first_row;
  const int64_t element_bytes = whole.y_is_float ? sizeof(float) : sizeof(uint16_t);
  part.y = static_cast<char*>(whole.y) + (first_token * whole.y_stride + first_row) * element_bytes;
  part.num_tokens = std::min(num_tokens, whole.num_tokens - first_token);
  part.rows = std::min(rows, whole.rows - first_row);
  part.padded_rows = std::min(rows, whole.padded_rows - first_row);
  return part;
}

void RoundedProducts::MultiplyFew(const Part& part) {
  const int kernel = QuantizedKernels::ProductFor(part.num_tokens);
  const ProductGrid grid = {.num_column_blocks = part.depth / kByteBlockColumns,
                            .num_row_blocks = CeilDiv(part.rows, kByteBlockRows),
                            .block_tokens = QuantizedKernels::kTokens[kernel],
                            .num_multiprocessors = device_->num_multiprocessors()};
  const ProductSplits splits = grid.SplitsOf(part.num_tokens);
  const int64_t stride = grid.SplitStride(part.num_tokens, part.padded_rows);
  void* const sums = sums_.Reserve<int32_t>(grid.MostSums(part.num_tokens, part.padded_rows));
  device_->Launch(KernelsFor(part.format, part.has_blocks).products[kernel],
                  RoundedProductArgs{.x = part.x,
                                     .x_scales = part.x_scales,
                                     .w = part.w,
                                     .w_scales = part.w_scales,
                                     .y = part.y,
                                     .y_stride = part.y_stride,
                                     .partial = sums,
                                     .split_stride = stride,
                                     .rows = part.rows,
                                     .padded_rows = part.padded_rows,
                                     .depth = part.depth,
                                     .num_tokens = part.num_tokens,
                                     .num_row_blocks = grid.num_row_blocks,
                                     .num_splits = splits.count,
                                     .blocks_per_split = splits.blocks,
                                     .tickets = tickets_.Reserve<uint32_t>(grid.num_row_blocks),
                                     .y_is_float = part.y_is_float,
                                     .adds_to_y = part.adds_to_y,
                                     .x_scale_stride = part.x_scale_stride,
                                     .w_scale_stride = part.w_scale_stride},
                  grid.num_row_blocks * splits.count * grid.NumTokenBlocks(part.num_tokens));
  const bool joins_splits = grid.block_tokens <= QuantizedKernels::kMostJoinedTokens;
  if (splits.count > 1 && !joins_splits) ScaleSums(part, sums, stride, splits.count);
}

void RoundedProducts::MultiplyMany(const Part& whole) {
  if (whole.format == QuantizedFormat::kInt8) return MultiplyManyInt8(whole);
  if (whole.has_blocks ? MultiplyBlocksByLibrary(whole) : MultiplyFp8ByLibrary(whole)) return;
  Complain(whole);
  MultiplyFew(whole);
}

void RoundedProducts::MultiplyManyInt8(const Part& whole) {
  const int tokens_at_once = std::min(whole.num_tokens, most_tokens_at_once_);
  // The parts have the same rows for all numbers of tokens between two powers of two, so that the device chooses an
  // algorithm for few shapes.
  const int64_t room = int64_t(sum_bytes_ / sizeof(int32_t)) / int64_t(std::bit_ceil(unsigned(tokens_at_once)));
  const int num_tiles = whole.padded_rows / kByteTileRows;
  const int64_t num_parts = CeilDiv(int64_t{num_tiles}, std::max<int64_t>(1, room / kByteTileRows));
  const int rows_at_once = int(CeilDiv(int64_t{num_tiles}, num_parts)) * kByteTileRows;
  for (int token = 0; token < whole.num_tokens; token += tokens_at_once) {
    for (int row = 0; row < whole.rows; row += rows_at_once) {
      const Part part = PartOf(whole, token, tokens_at_once, row, rows_at_once);
      if (MultiplyInt8ByLibrary(part)) continue;
      Complain(part);
      MultiplyFew(part);
    }
  }
}

bool RoundedProducts::MultiplyInt8ByLibrary(const Part& part) {
  const int64_t count = int64_t{part.num_tokens} * part.padded_rows;
  int32_t* const sums = sums_.Reserve<int32_t>(count);
  const bool is_multiplied = device_->MultiplyInt8({.x = part.x,
                                                    .w = part.w,
                                                    .y = sums,
                                                    .num_rows = part.num_tokens,
                                                    .num_columns = part.padded_rows,
                                                    .depth = part.depth});
  if (is_multiplied) ScaleSums(part, sums, count, /*num_splits=*/1);
  return is_multiplied;
}

bool RoundedProducts::MultiplyBlocksByLibrary(const Part& part) {
  constexpr int kColumnMultiple = 8;  // The library wants rows of y that are aligned to 16 bytes.
  if (part.rows % kColumnMultiple != 0) return false;
  Part padded = part;
  padded.num_tokens = part.x_scale_stride;
  // Products of fewer tokens may have to be copied even if these have not. A worker runs steps of a few sizes at its
  // start and then gives the rest of the memory to the pool, so the memory for the copies is taken now.
  if (!part.has_room) {
    sums_.Reserve<float>(int64_t{std::min(padded.num_tokens, MostCopiedTokens(part.rows))} * part.rows);
  }
  if (padded.num_tokens == part.num_tokens || part.has_room) return MultiplyFp8ByLibrary(padded);
  const int64_t count = int64_t{padded.num_tokens} * part.rows;
  padded.y = sums_.Reserve<float>(count);
  padded.y_is_float = true;
  padded.adds_to_y = false;
  if (!MultiplyFp8ByLibrary(padded)) return false;
  Part copy = part;
  copy.padded_rows = part.rows;
  ScaleSums(copy, padded.y, count, /*num_splits=*/1);
  return true;
}

bool RoundedProducts::MultiplyFp8ByLibrary(const Part& part) {
  return device_->MultiplyFp8({.x = reinterpret_cast<const uint8_t*>(part.x),
                               .w = reinterpret_cast<const uint8_t*>(part.w),
                               .x_scales = part.x_scales,
                               .w_scales = part.w_scales,
                               .y = part.y,
                               .num_rows = part.num_tokens,
                               .num_columns = part.rows,
                               .depth = part.depth,
                               .y_type = part.y_is_float ? DataType::kFloat32 : element_,
                               .adds_to_y = part.adds_to_y,
                               .has_blocks = part.has_blocks});
}

void RoundedProducts::Complain(const Part& part) {
  if (!complained_.insert({part.format, part.has_blocks}).second) return;
  WriteLine(/*is_error=*/false,
            part.format == QuantizedFormat::kFp8
                ? FormatLine("cuBLASLt has no products of FP8%s of %d tokens by %d columns of %d; a slower kernel "
                             "multiplies them",
                             part.has_blocks ? " in blocks" : "", part.num_tokens, part.rows, part.depth)
                : FormatLine("cuBLASLt has no products of int8 of %d tokens by %d columns of %d; a slower kernel gives "
                             "the same bits",
                             part.num_tokens, part.padded_rows, part.depth));
}

void RoundedProducts::ScaleSums(const Part& part, const void* sums, int64_t split_stride, int num_splits) {
  constexpr int kColumns = 8;  // Columns for each thread.
  const Kernel<ScaleSumsArgs>& kernel = KernelsFor(part.format, part.has_blocks).scale_sums;
  device_->Launch(kernel,
                  ScaleSumsArgs{.sums = sums,
                                .x_scales = part.x_scales,
                                .w_scales = part.w_scales,
                                .y = part.y,
                                .split_stride = split_stride,
                                .y_stride = part.y_stride,
                                .num_splits = num_splits,
                                .sum_columns = part.padded_rows,
                                .num_tokens = part.num_tokens,
                                .num_columns = part.rows,
                                .y_is_float = part.y_is_float,
                                .adds_to_y = part.adds_to_y},
                  NumBlocks(int64_t{part.num_tokens} * CeilDiv(part.rows, kColumns), kernel.num_threads));
}

BackendStatus RoundedProducts::Check(const ByteCudaMatrix& w, const QuantizedMatrixView* matrices, int num_matrices) {
  if (!checked_.insert({w.format(), w.has_blocks()}).second) return BackendStatus::Ok();
  const ProductCheck check(device_, element_, matrices, num_matrices);
  for (const int num_tokens : QuantizedKernels::kTokens) {
    // One token less than the most has a token that is missing.
    const BackendStatus status =
        check.Run(num_tokens - 1, ProductFormula::kRoundedInputs, [&](const uint16_t* x, float* y) {
          MultiplyFew(Rounded(x, w, num_tokens - 1, y, DataType::kFloat32, /*adds_to_y=*/false));
        });
    if (!status.ok()) return status;
  }
  constexpr int kManyTokens = std::max(kMostInt8Tokens, kMostFp8Tokens) + 1;
  const auto check_many = [&](int num_tokens) {
    return check.Run(num_tokens, ProductFormula::kRoundedInputs, [&](const uint16_t* x, float* y) {
      MultiplyMany(Rounded(x, w, num_tokens, y, DataType::kFloat32, /*adds_to_y=*/false));
    });
  };
  const BackendStatus status = check_many(kManyTokens);
  // In blocks, the library writes multiples of four tokens directly.
  return status.ok() && w.has_blocks() ? check_many(RowsWithRoom(kManyTokens)) : status;
}

}  // namespace quire::cuda
