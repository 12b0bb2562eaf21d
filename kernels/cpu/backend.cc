// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/backend.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/input_tiles.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/rope_append.h"
#include "kernels/cpu/rounding.h"

namespace quire {
namespace cpu {
namespace {

constexpr int kNormRowsPerItem = 8;

void Xielu(const KernelTable& kernels, const XieluShape& shape, const float* x, int dim, float* y) {
  for (int i = 0; i < dim; ++i) y[i] = std::min(x[i], shape.limit);
  kernels.exp(y, dim, y);
  for (int i = 0; i < dim; ++i) {
    const float curve = x[i] > 0 ? shape.positive * x[i] * x[i] : shape.negative * (y[i] - 1 - x[i]);
    y[i] = curve + shape.beta * x[i];
  }
}

}  // namespace

CpuBackend::CpuBackend(int num_threads, Isa isa)
    : isa_(isa),
      kernels_(KernelsFor(isa)),
      pool_(num_threads),
      linear_(&kernels_, &pool_),
      experts_(&kernels_, &pool_, &linear_),
      rank_sums_(&kernels_, &pool_),
      attention_(&kernels_, &pool_),
      sampler_(&kernels_, &pool_) {}

BackendStatus CpuBackend::CheckLayout(const KvLayout& layout, int /*num_heads*/) const {
  if (layout.head_dim <= kMaxHeadDim) return BackendStatus::Ok();
  return BackendStatus::Error("the heads have " + std::to_string(layout.head_dim) + " dimensions, the limit is " +
                              std::to_string(kMaxHeadDim));
}

std::string CpuBackend::Description() const {
  return std::string("cpu ") + Name(isa_) + ", " + std::to_string(pool_.num_threads()) +
         (pool_.num_threads() == 1 ? " thread" : " threads");
}

// AVX2 and AVX-512, with and without VNNI, compute the same bits. Raise the number when a change of the kernels changes
// their results.
std::string CpuBackend::NumericsFingerprint() const {
  switch (isa_) {
    case Isa::kGeneric:
      return "cpu generic 2";
    case Isa::kAvx2:
    case Isa::kAvx512:
    case Isa::kAvx512Vnni:
      return "cpu fma 2";
    case Isa::kAvx512Bf16:
      return "cpu avx512_bf16 4";
    case Isa::kAmx:
      return "cpu amx 5";
  }
  return "unknown";
}

void* CpuBackend::Allocate(size_t bytes) {
  Memory memory(bytes);
  void* data = memory.data();
  if (data != nullptr) allocations_.emplace(data, std::move(memory));
  return data;
}

void CpuBackend::Free(void* memory) {
  allocations_.erase(memory);
}

void CpuBackend::CopyToDevice(void* destination, const void* source, size_t bytes) {
  memcpy(destination, source, bytes);
}

void CpuBackend::CopyToHost(void* destination, const void* source, size_t bytes) {
  memcpy(destination, source, bytes);
}

std::unique_ptr<PackedMatrix> CpuBackend::Pack(const MatrixView* matrices, int num_matrices) {
  return CpuPackedMatrix::Make(matrices, num_matrices, &pool_);
}

std::unique_ptr<PackedMatrix> CpuBackend::PackGated(const MatrixView& gate, const MatrixView& up) {
  return CpuPackedMatrix::MakeGated(gate, up, &pool_);
}

std::unique_ptr<PackedMatrix> CpuBackend::PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) {
  return CpuPackedMatrix::Make(matrices, num_matrices, FormatFor(matrices[0].format, kernels_), &pool_);
}

std::unique_ptr<PackedMatrix> CpuBackend::PackGatedQuantized(const QuantizedMatrixView& gate,
                                                             const QuantizedMatrixView& up) {
  return CpuPackedMatrix::MakeGated(gate, up, FormatFor(gate.format, kernels_), &pool_);
}

std::unique_ptr<PackedMatrix> CpuBackend::PackBlocks(const BlockMatrixView* matrices, int num_matrices) {
  return CpuPackedMatrix::Make(matrices, num_matrices, &pool_);
}

std::unique_ptr<PackedMatrix> CpuBackend::PackGatedBlocks(const BlockMatrixView& gate, const BlockMatrixView& up) {
  return CpuPackedMatrix::MakeGated(gate, up, &pool_);
}

DataType CpuBackend::InputType(const PackedMatrix& w) const {
  return linear_.InputType(static_cast<const CpuPackedMatrix&>(w));
}

InputLayout CpuBackend::InputLayoutOf(const PackedMatrix& w, int num_tokens) const {
  return linear_.InputLayoutOf(static_cast<const CpuPackedMatrix&>(w), num_tokens);
}

void CpuBackend::Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) {
  const auto& matrix = static_cast<const CpuPackedMatrix&>(table);
  pool_.ForEach(num_tokens, [&](int i, int) {
    float* const row = static_cast<float*>(y) + int64_t{i} * matrix.cols();
    matrix.CopyRow(token_ids[i], row);
    if (scale == 1) return;
    for (int j = 0; j < matrix.cols(); ++j) row[j] *= scale;
  });
}

void CpuBackend::Round(const void* x, int num_rows, int dim, DataType y_type, void* y) {
  pool_.ForEach(num_rows, [&](int row, int) {
    const int64_t at = int64_t{row} * dim;
    kernels_.convert[int(y_type)](static_cast<const float*>(x) + at,
                                  static_cast<char*>(y) + at * int64_t(SizeOf(y_type)), dim);
  });
}

void CpuBackend::Linear(const LinearArgs& args) {
  linear_.Run(args);
}

void CpuBackend::GatedLinear(const GatedLinearArgs& args) {
  linear_.Run(args);
}

void CpuBackend::MakeFloatRows(int dim) {
  float_rows_.resize(pool_.num_threads());
  for (std::vector<float>& row : float_rows_) row.resize(dim);
}

void CpuBackend::Activate(const ActivateArgs& args) {
  MakeFloatRows(args.dim);
  pool_.ForEach(args.num_rows, [&](int row, int thread) {
    const float* const x = static_cast<const float*>(args.x) + int64_t{row} * args.dim;
    float* const y = float_rows_[thread].data();
    if (args.activation == PlainActivation::kXielu) {
      Xielu(kernels_, args.xielu, x, args.dim, y);
    } else {
      for (int i = 0; i < args.dim; ++i) y[i] = x[i] > 0 ? x[i] * x[i] : 0;
    }
    kernels_.convert[int(args.y_type)](
        y, static_cast<char*>(args.y) + int64_t{row} * args.dim * int64_t(SizeOf(args.y_type)), args.dim);
  });
}

// The mean is summed in double, in the order of the row.
const float* CpuBackend::NormInput(const RmsNormArgs& args, int row, int thread) {
  const float* const x = static_cast<const float*>(args.x) + row * (args.x_stride == 0 ? args.dim : args.x_stride);
  if (!args.subtracts_mean) return x;
  double sum = 0;
  for (int i = 0; i < args.dim; ++i) sum += x[i];
  const float mean = float(sum / args.dim);
  float* const centred = float_rows_[thread].data();
  for (int i = 0; i < args.dim; ++i) centred[i] = x[i] - mean;
  return centred;
}

void CpuBackend::NormToTiles(const RmsNormArgs& args) {
  const TileOrder order(args.num_rows, args.dim, SlicesOf(args.y_layout));
  normed_rows_.resize(pool_.num_threads());
  for (std::vector<BFloat16>& row : normed_rows_) row.resize(args.dim);
  pool_.ForEach(CeilDiv(args.num_rows, kNormRowsPerItem), [&](int item, int thread) {
    BFloat16* const normed = normed_rows_[thread].data();
    const int begin = item * kNormRowsPerItem, end = std::min(begin + kNormRowsPerItem, args.num_rows);
    for (int row = begin; row < end; ++row) {
      const float* const x = NormInput(args, row, thread);
      kernels_.rms_norm[int(DataType::kBFloat16)](x, args.weight, /*residual=*/nullptr, normed, args.dim, args.epsilon);
      StoreInTiles(normed, args.dim, row, 0, order, static_cast<BFloat16*>(args.y));
    }
  });
}

void CpuBackend::NormColumns(const RmsNormArgs& args) {
  MakeFloatRows(args.dim);
  pool_.ForEach(args.num_rows, [&](int row, int thread) {
    const float* const x = static_cast<const float*>(args.x) + row * (args.x_stride == 0 ? args.dim : args.x_stride);
    float* const y = float_rows_[thread].data();
    kernels_.rms_norm[int(DataType::kFloat32)](x, args.weight, /*residual=*/nullptr, y, args.dim, args.epsilon);
    std::copy_n(y + args.y_first, args.y_cols,
                static_cast<float*>(args.y) + row * (args.y_stride == 0 ? args.y_cols : args.y_stride));
  });
}

void CpuBackend::RmsNorm(const RmsNormArgs& args) {
  if (args.y_cols > 0) return NormColumns(args);
  if (args.subtracts_mean) MakeFloatRows(args.dim);
  if (args.y_layout != InputLayout::kRows) return NormToTiles(args);
  pool_.ForEach(args.num_rows, [&](int row, int thread) {
    const int64_t y_at = row * (args.y_stride == 0 ? args.dim : args.y_stride);
    const float* const residual = static_cast<const float*>(args.residual);
    kernels_.rms_norm[int(args.y_type)](
        NormInput(args, row, thread), args.weight, residual == nullptr ? nullptr : residual + int64_t{row} * args.dim,
        static_cast<char*>(args.y) + y_at * int64_t(SizeOf(args.y_type)), args.dim, args.epsilon);
  });
}

const RotaryTable& CpuBackend::PrepareRotary(const RopeAppendArgs& args) {
  const int half = args.rotary_dim / 2;
  const auto matches = [&](const auto& table) { return table->Matches(args.inv_freq, half, args.attention_scaling); };
  auto table = std::find_if(rotary_tables_.begin(), rotary_tables_.end(), matches);
  if (table == rotary_tables_.end()) {
    rotary_tables_.push_back(std::make_unique<RotaryTable>(args.inv_freq, half, args.attention_scaling));
    table = rotary_tables_.end() - 1;
  }
  (*table)->Prepare(args.batch->positions, args.batch->num_tokens);
  return **table;
}

void CpuBackend::RopeAppend(const RopeAppendArgs& args) {
  const RotaryTable& rotary = PrepareRotary(args);
  ListAppendRuns(*args.batch, *args.layout, &append_runs_);
  pool_.ForEach(int(append_runs_.size()),
                [&](int i, int) { cpu::RopeAppend(args, kernels_, rotary, append_runs_[i]); });
}

void CpuBackend::Attention(const AttentionArgs& args) {
  attention_.Run(args);
}

void CpuBackend::GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) {
  pool_.ForEach(num_rows, [&](int i, int) {
    memcpy(static_cast<float*>(y) + int64_t{i} * dim, static_cast<const float*>(x) + int64_t{rows[i]} * dim,
           dim * sizeof(float));
  });
}

void CpuBackend::ReadRows(const void* x, int num_rows, int dim, float* values) {
  memcpy(values, x, size_t(num_rows) * dim * sizeof(float));
}

void CpuBackend::CopyBlocks(const BlockCopyArgs& args) {
  const size_t bytes = args.layout->block_bytes();
  pool_.ForEach(args.num_copies * args.layout->num_layers, [&](int item, int) {
    char* pool = static_cast<char*>(args.kv_pools[item / args.num_copies]);
    const int copy = item % args.num_copies;
    memcpy(pool + args.destinations[copy] * bytes, pool + args.sources[copy] * bytes, bytes);
  });
}

void CpuBackend::SwapBlocks(const BlockSwapArgs& args) {
  const size_t bytes = args.layout->block_bytes();
  const int num_layers = args.layout->num_layers;
  pool_.ForEach(args.num_swaps * num_layers, [&](int item, int) {
    const int swap = item / num_layers, layer = item % num_layers;
    char* block = static_cast<char*>(args.kv_pools[layer]) + args.blocks[swap] * bytes;
    char* host = static_cast<char*>(args.host_pool) + (size_t{args.host_blocks[swap]} * num_layers + layer) * bytes;
    args.direction == SwapDirection::kOut ? memcpy(host, block, bytes) : memcpy(block, host, bytes);
  });
}

void CpuBackend::Sample(const SamplingArgs& args) {
  sampler_.Run(args);
}

std::unique_ptr<Backend> MakeCpuBackend(int num_threads, Isa isa) {
  if (num_threads <= 0) num_threads = std::max(1, int(std::thread::hardware_concurrency()));
  return std::make_unique<CpuBackend>(num_threads, isa);
}

}  // namespace cpu

std::unique_ptr<Backend> MakeCpuBackend(int num_threads) {
  return cpu::MakeCpuBackend(num_threads, cpu::SupportedIsas().back());
}

}  // namespace quire
