// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/backend.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cuda/copy_blocks.h"
#include "kernels/cuda/fatal.h"
#include "kernels/cuda/layout_check.h"
#include "kernels/cuda/matrix.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/row_kernels.h"
#include "kernels/half_float.h"

namespace quire::cuda {
namespace {

constexpr int kVectorElements = 8;  // The number of elements that kernels load at once.
constexpr int kMostCopies = 4096;   // Copies of blocks in one launch.

const DeviceMatrix& Matrix(const PackedMatrix& w) {
  return static_cast<const DeviceMatrix&>(w);
}

// REQUIRES: the matrix is not quantized.
const uint16_t* ElementsOf(const DeviceMatrix& matrix) {
  return static_cast<const CudaMatrix&>(matrix).data();
}

// Returns the room for the arrays of a batch.
size_t BatchBytes(int num_tokens, int num_starts, size_t num_table_entries) {
  return 2 * UploadArena::BytesFor<int32_t>(num_tokens) + UploadArena::BytesFor<int64_t>(num_tokens) +
         UploadArena::BytesFor<int32_t>(num_starts) + UploadArena::BytesFor<uint32_t>(num_table_entries);
}

// Returns the room for output rows: `num_rows` with the added ones.
size_t OutputBytes(const SamplingArgs& sampling, int num_rows) {
  return UploadArena::BytesFor<int32_t>(num_rows) + Sampler::UploadBytes(sampling, num_rows);
}

// Returns the room for `num_copies` copies of blocks.
size_t CopiesBytes(int num_copies, int num_layers) {
  return 2 * UploadArena::BytesFor<uint32_t>(num_copies) + UploadArena::BytesFor<char*>(num_layers);
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<Device> device, const CudaBackendOptions& options)
    : device_(std::move(device)),
      element_(options.element),
      exact_(options.exact),
      has_graphs_(options.graphs),
      rounds_int8_inputs_(options.rounds_int8_inputs),
      rounds_fp8_inputs_(options.rounds_fp8_inputs && !options.exact),
      num_ranks_(options.num_ranks),
      kernels_(*device_->FindKernels(element_, /*head_dim=*/64, /*block_size=*/16)),
      attention_(device_.get(), exact_),
      sampler_(device_.get(), &kernels_),
      quantized_(device_.get(), &kernels_, element_, exact_, QuantizedProducts::kSliceBytes,
                 QuantizedProducts::kMostPackedTokens),
      rounded_products_(device_.get(), &kernels_, element_),
      experts_(device_.get(), &kernels_),
      rank_sums_(device_.get(), &kernels_, exact_),
      batch_arena_(device_.get()),
      rows_arena_(device_.get(), Recorded::kNever),
      copies_arena_(device_.get(), Recorded::kNever),
      sums_(device_.get(), "sums of products"),
      graphs_(device_.get()) {}

CudaBackend::~CudaBackend() {
  device_->Synchronize();
}

std::string CudaBackend::NumericsFingerprint() const {
  return "cuda 3 " + std::string(Name(element_)) + (exact_ ? " exact, " : ", ") +
         (num_ranks_ > 1 ? std::to_string(num_ranks_) + " ranks, " : "") + device_->NumericsFingerprint();
}

BackendStatus CudaBackend::CheckLayout(const KvLayout& layout, int num_heads) const {
  const KernelTable* const table = device_->FindKernels(element_, layout.head_dim, layout.block_size);
  return cuda::CheckLayout(
      element_, layout, num_heads,
      {.has_16_bits = table != nullptr, .has_int8 = table != nullptr && table->int8_kv != nullptr});
}

BackendStatus CudaBackend::Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes) {
  num_positions_ = std::max(num_positions_, sizes.max_context_tokens);
  const int64_t num_sequences = std::min(sizes.max_sequences, sizes.max_tokens);
  most_batch_bytes_ = BatchBytes(sizes.max_tokens, sizes.max_tokens + 1,
                                 num_sequences * CeilDiv(sizes.max_context_tokens, layout.block_size)) +
                      OutputBytes({}, LayerGraphs::kMaxTokens);
  const size_t missing = attention_.Reserve(layout, num_heads, sizes);
  if (missing != 0) {
    return BackendStatus::Error("attention over " + std::to_string(sizes.max_context_tokens) + " tokens needs " +
                                std::to_string(missing) + " more bytes for the partial results of " +
                                std::to_string(sizes.max_tokens) + " tokens per step");
  }
  if (!sampler_.Reserve(sizes.max_logit_rows, sizes.vocab_size, sizes.max_top) ||
      !rows_arena_.Reserve(UploadArena::BytesFor<int32_t>(sizes.max_logit_rows)) ||
      !copies_arena_.Reserve(CopiesBytes(kMostCopies, layout.num_layers))) {
    return BackendStatus::Error("there is no memory for draws of " + std::to_string(sizes.max_logit_rows) +
                                " tokens from a vocabulary of " + std::to_string(sizes.vocab_size));
  }
  return BackendStatus::Ok();
}

const KernelTable& CudaBackend::KernelsFor(const KvLayout& layout) const {
  const KernelTable& table = *device_->FindKernels(element_, layout.head_dim, layout.block_size);
  return layout.type == KvType::kInt8 ? *table.int8_kv : table;
}

void CudaBackend::Free(void* memory) {
  device_->Synchronize();
  graphs_.Reset();
  device_->Free(memory);
}

// Recorded steps hold the connection of their session.
BackendStatus CudaBackend::SetGroup(Collective* group) {
  graphs_.Reset();
  return rank_sums_.SetGroup(group);
}

void CudaBackend::FreeHost(void* memory) {
  device_->Synchronize();
  device_->FreeHost(memory);
}

void CudaBackend::CopyToDevice(void* destination, const void* source, size_t bytes) {
  device_->Copy(destination, source, bytes);
  device_->Synchronize();
}

void CudaBackend::CopyToHost(void* destination, const void* source, size_t bytes) {
  device_->Copy(destination, source, bytes);
  device_->Synchronize();
}

std::unique_ptr<PackedMatrix> CudaBackend::Pack(const MatrixView* matrices, int num_matrices) {
  return CudaMatrix::Pack(device_.get(), element_, matrices, num_matrices);
}

std::unique_ptr<PackedMatrix> CudaBackend::PackGated(const MatrixView& gate, const MatrixView& up) {
  const MatrixView both[] = {gate, up};
  return Pack(both, 2);
}

bool CudaBackend::RoundsQuantizedInputs(QuantizedFormat format, Fp8ScaleShape scales) const {
  switch (format) {
    case QuantizedFormat::kInt8:
      return rounds_int8_inputs_;
    case QuantizedFormat::kFp8:
      return rounds_fp8_inputs_ && scales != Fp8ScaleShape::kOtherBlocks && kernels_.rounded_fp8.exist();
    case QuantizedFormat::kInt4:
    case QuantizedFormat::kInt4Float32:
    case QuantizedFormat::kInt4BFloat16:
      break;
  }
  return false;
}

std::unique_ptr<PackedMatrix> CudaBackend::PackQuantized(const QuantizedMatrixView* matrices, int num_matrices) {
  const Fp8ScaleShape scales = matrices[0].has_blocks ? Fp8ScaleShape::kBlocks128 : Fp8ScaleShape::kRows;
  if (RoundsQuantizedInputs(matrices[0].format, scales) && ByteCudaMatrix::CanPack(matrices, num_matrices)) {
    return ByteCudaMatrix::Pack(device_.get(), matrices, num_matrices);
  }
  return QuantizedCudaMatrix::Pack(device_.get(), matrices, num_matrices);
}

std::unique_ptr<PackedMatrix> CudaBackend::PackGatedQuantized(const QuantizedMatrixView& gate,
                                                              const QuantizedMatrixView& up) {
  const QuantizedMatrixView both[] = {gate, up};
  return PackQuantized(both, 2);
}

BackendStatus CudaBackend::CheckQuantized(const PackedMatrix& w, const QuantizedMatrixView* matrices,
                                          int num_matrices) {
  if (const ByteCudaMatrix* const bytes = Matrix(w).byte_matrix()) {
    return rounded_products_.Check(*bytes, matrices, num_matrices);
  }
  return quantized_.Check(*Matrix(w).quantized(), matrices, num_matrices);
}

const BatchView* CudaBackend::PrepareBatch(const BatchView* views, int num_views, int max_tokens) {
  const BatchView& batch = views[0];
  const int num_sequences = batch.num_sequences;
  const bool is_decode = batch.num_tokens == num_sequences && batch.num_tokens <= LayerGraphs::kMaxTokens;
  const int padded_tokens = is_decode ? LayerGraphs::PaddedTokens(batch.num_tokens) : 0;
  is_padded_ = has_graphs_ && is_decode && padded_tokens <= max_tokens;
  const int num_tokens = is_padded_ ? padded_tokens : batch.num_tokens;
  const int max_starts = (is_padded_ ? padded_tokens : num_sequences) + 1;
  PrepareOutputs(padded_tokens);
  UploadArena& arena = batch_arena_;
  size_t bytes = attention_.PlanStep(views, num_views);
  size_t num_entries = 0;
  for (int i = 0; i < num_views; ++i) {
    bytes += BatchBytes(num_tokens, max_starts, views[i].table_starts[num_sequences]);
    num_entries += views[i].table_starts[num_sequences];
  }
  if (num_output_rows_ > 0) bytes += OutputBytes(outputs_.sampling, num_output_rows_);
  arena.Begin(std::max(bytes, num_views * most_batch_bytes_ + attention_.MostUploadBytes()));
  const auto add_padded = [&](const auto* values, int count, int capacity, auto padding) {
    const auto room = arena.Add<decltype(padding)>(capacity);
    std::copy_n(values, count, room.host);
    std::fill(room.host + count, room.host + capacity, padding);
    return room.device;
  };
  // If the step is padded, the addresses of all arrays but the last depend only on its launches and on the numbers of
  // tokens, output rows and views. So the last one has the tables of all views.
  BatchView on_device = {.num_tokens = num_tokens,
                         .num_sequences = num_sequences,
                         .token_ids = add_padded(batch.token_ids, batch.num_tokens, num_tokens, int32_t{0}),
                         .positions = add_padded(batch.positions, batch.num_tokens, num_tokens, int32_t{0}),
                         .slots = nullptr,
                         .query_starts = nullptr,  // Only the planner reads it, on the host.
                         .context_lens = nullptr,
                         .table_starts = nullptr,
                         .block_tables = nullptr};
  views_.clear();
  int32_t first_entry = 0;
  for (int i = 0; i < num_views; ++i) {
    on_device.slots = add_padded(views[i].slots, batch.num_tokens, num_tokens, int64_t{-1});
    const auto starts = arena.Add<int32_t>(max_starts);
    std::transform(views[i].table_starts, views[i].table_starts + num_sequences + 1, starts.host,
                   [first_entry](int32_t start) { return first_entry + start; });
    on_device.table_starts = starts.device;
    first_entry += views[i].table_starts[num_sequences];
    views_.push_back(on_device);
  }
  if (num_output_rows_ > 0) {
    output_rows_ = add_padded(outputs_.rows, outputs_.num_rows, num_output_rows_, outputs_.rows[0]);
    sampler_.Prepare(outputs_.sampling, num_output_rows_, &arena);
  }
  attention_.AddPlans(&arena);
  const auto tables = arena.Add<uint32_t>(num_entries);
  uint32_t* next_table = tables.host;
  for (int i = 0; i < num_views; ++i) {
    next_table = std::copy_n(views[i].block_tables, views[i].table_starts[num_sequences], next_table);
    views_[i].block_tables = tables.device;
  }
  arena.Upload();
  num_positions_ = std::max(num_positions_, *std::max_element(batch.context_lens, batch.context_lens + num_sequences));
  return views_.data();
}

// Accepts the outputs that were announced for a batch that is padded to this number of tokens, if recordings can have
// them.
void CudaBackend::PrepareOutputs(int padded_tokens) {
  num_output_rows_ = 0;
  if (announced_ && is_padded_) {
    outputs_ = *announced_;
    const bool has_room = outputs_.num_rows <= padded_tokens && outputs_.sampling.num_rows <= padded_tokens &&
                          padded_tokens <= outputs_.max_rows;
    if (has_room && Sampler::HasFixedSize(outputs_.sampling)) num_output_rows_ = padded_tokens;
  }
  announced_.reset();
}

bool CudaBackend::ReplayLayers(const void* model) {
  if (!is_padded_) return false;
  const bool has_outputs = num_output_rows_ > 0;
  if (!graphs_.HasRun(model, views_[0].num_tokens, has_outputs)) {
    graphs_.AddRun(model, views_[0].num_tokens, has_outputs);
    return false;
  }
  // The host plans attention and fills the rotary tables in the layers of a step that is not replayed.
  const std::string launches = attention_.PlanForRecording();
  for (const auto& table : rotary_tables_) table->Get(num_positions_);
  const int max_top = has_outputs ? outputs_.sampling.max_top : 0;
  const LayerGraphs::Key key = {model, views_[0].num_tokens, has_outputs, max_top, launches};
  if (graphs_.ReplayOrRecord(key, attention_.num_moves())) return true;
  attention_.set_is_recording(graphs_.is_recording());
  return false;
}

bool CudaBackend::EndLayers() {
  if (!graphs_.is_recording()) return true;
  attention_.set_is_recording(false);
  return graphs_.EndRecording();
}

// No matrix has inputs of another type than activations.
void CudaBackend::Round(const void* /*x*/, int /*num_rows*/, int /*dim*/, DataType y_type, void* /*y*/) {
  CheckOutput(y_type);
}

void CudaBackend::Embed(const PackedMatrix& table, const int32_t* token_ids, int num_tokens, float scale, void* y) {
  device_->Launch(scale == 1 ? kernels_.gather_rows : kernels_.gather_scaled_rows,
                  GatherRowsArgs{.x = ElementsOf(Matrix(table)),
                                 .rows = token_ids,
                                 .y = static_cast<uint16_t*>(y),
                                 .num_rows = num_tokens,
                                 .dim = Matrix(table).cols(),
                                 .written_rows = sampler_.drawn_tokens(),
                                 .scale = scale},
                  NumBlocks(num_tokens, GatherRowsKernel::kRowsPerBlock));
}

void CudaBackend::Multiply(const void* x, const PackedMatrix& w, int num_tokens, void* y, DataType y_type,
                           bool adds_to_y, bool has_room) {
  const DeviceMatrix& matrix = Matrix(w);
  const auto* const elements = static_cast<const uint16_t*>(x);
  if (matrix.byte_matrix() != nullptr) {
    return rounded_products_.Multiply(elements, *matrix.byte_matrix(), num_tokens, y, y_type, adds_to_y, has_room);
  }
  if (matrix.quantized() != nullptr) {
    return quantized_.Multiply(elements, *matrix.quantized(), num_tokens, y, y_type, adds_to_y);
  }
  device_->Multiply({.x = elements,
                     .w = ElementsOf(matrix),
                     .y = y,
                     .num_rows = num_tokens,
                     .num_columns = matrix.rows(),
                     .depth = matrix.cols(),
                     .element = element_,
                     .y_type = y_type,
                     .adds_to_y = adds_to_y});
}

void CudaBackend::AddBias(const float* bias, int num_rows, int dim, void* y) {
  device_->Launch(kernels_.add_bias,
                  AddBiasArgs{.y = static_cast<uint16_t*>(y), .bias = bias, .num_rows = num_rows, .dim = dim},
                  NumBlocks(int64_t{num_rows} * dim / kVectorElements, kernels_.add_bias.num_threads));
}

void CudaBackend::CheckOutput(DataType type) const {
  if (type != element_) Fatal("an output of %s, of a backend of %s", Name(type), Name(element_));
}

void CudaBackend::Linear(const LinearArgs& args) {
  const int dim = Matrix(*args.w).rows();
  if (args.y_type == DataType::kFloat32) return LogitProduct(args, dim);
  if (args.softcap != 0) Fatal("a softcap of %d activations", dim);
  if (args.scale != 1) return ScaledProduct(args, dim);
  if (args.residual != nullptr && args.residual != args.y) {
    device_->Copy(args.y, args.residual, size_t(args.num_tokens) * dim * SizeOf(args.y_type));
  }
  Multiply(args.x, *args.w, args.num_tokens, args.y, args.y_type, args.residual != nullptr);
  if (args.bias != nullptr) AddBias(args.bias, args.num_tokens, dim, args.y);
}

void CudaBackend::LogitProduct(const LinearArgs& args, int dim) {
  if (args.bias != nullptr || args.residual != nullptr) Fatal("a bias or a residual of %d logits", dim);
  Multiply(args.x, *args.w, args.num_tokens, args.y, args.y_type, /*adds_to_y=*/false);
  if (args.scale == 1 && args.softcap == 0) return;
  const int64_t count = int64_t{args.num_tokens} * dim;
  device_->Launch(
      kernels_.cap_logits,
      CapLogitsArgs{.y = static_cast<float*>(args.y), .count = count, .scale = args.scale, .softcap = args.softcap},
      NumBlocks(count, CapLogitsKernel::kLogitsPerBlock));
}

void CudaBackend::ScaledProduct(const LinearArgs& args, int dim) {
  uint16_t* const product = sums_.Reserve<uint16_t>(size_t(RoundedProducts::RowsWithRoom(args.num_tokens)) * dim);
  Multiply(args.x, *args.w, args.num_tokens, product, element_, /*adds_to_y=*/false, /*has_room=*/true);
  device_->Launch(kernels_.scale_rows,
                  ScaleRowsArgs{.x = product,
                                .bias = args.bias,
                                .residual = static_cast<const uint16_t*>(args.residual),
                                .y = static_cast<uint16_t*>(args.y),
                                .num_rows = args.num_tokens,
                                .dim = dim,
                                .scale = args.scale},
                  NumBlocks(int64_t{args.num_tokens} * dim / kVectorElements, kernels_.scale_rows.num_threads));
}

void CudaBackend::GatedLinear(const GatedLinearArgs& args) {
  CheckOutput(args.y_type);
  const int dim = Matrix(*args.w).rows() / 2;
  uint16_t* const gate_up = sums_.Reserve<uint16_t>(size_t(RoundedProducts::RowsWithRoom(args.num_tokens)) * 2 * dim);
  Multiply(args.x, *args.w, args.num_tokens, gate_up, element_, /*adds_to_y=*/false, /*has_room=*/true);
  if (args.bias != nullptr) AddBias(args.bias, args.num_tokens, 2 * dim, gate_up);
  const Kernel<GatedArgs>& kernel = args.activation == Activation::kSilu ? kernels_.silu_mul : kernels_.gelu_mul;
  device_->Launch(kernel,
                  GatedArgs{.x = gate_up, .y = static_cast<uint16_t*>(args.y), .num_rows = args.num_tokens, .dim = dim},
                  NumBlocks(int64_t{args.num_tokens} * dim / kVectorElements, kernel.num_threads));
}

void CudaBackend::Activate(const ActivateArgs& args) {
  CheckOutput(args.y_type);
  const int64_t count = int64_t{args.num_rows} * args.dim;
  device_->Launch(kernels_.activate,
                  ActivateKernelArgs{.x = static_cast<const uint16_t*>(args.x),
                                     .y = static_cast<uint16_t*>(args.y),
                                     .count = count,
                                     .activation = args.activation,
                                     .xielu = args.xielu},
                  NumBlocks(count / kVectorElements, kernels_.activate.num_threads));
}

void CudaBackend::ExchangeRows(const ExchangeRowsArgs& args) {
  Fatal("an exchange of %d rows, of an asynchronous backend", args.num_rows);
}

void CudaBackend::RmsNorm(const RmsNormArgs& args) {
  CheckOutput(args.y_type);
  device_->Launch(kernels_.rms_norm,
                  RmsNormKernelArgs{.x = static_cast<const uint16_t*>(args.x),
                                    .weight = args.weight,
                                    .y = static_cast<uint16_t*>(args.y),
                                    .num_rows = args.num_rows,
                                    .dim = args.dim,
                                    .epsilon = args.epsilon,
                                    .residual = static_cast<const uint16_t*>(args.residual),
                                    .x_stride = int32_t(args.x_stride),
                                    .y_stride = int32_t(args.y_stride),
                                    .subtracts_mean = args.subtracts_mean,
                                    .y_first = args.y_first,
                                    .y_cols = args.y_cols},
                  NumBlocks(args.num_rows, 1));
}

const float* CudaBackend::Rotary(const RopeAppendArgs& args) {
  const int half = args.rotary_dim / 2;
  const auto matches = [&](const auto& table) { return table->Matches(args.inv_freq, half, args.attention_scaling); };
  auto table = std::find_if(rotary_tables_.begin(), rotary_tables_.end(), matches);
  if (table == rotary_tables_.end()) {
    table = rotary_tables_.insert(
        table, std::make_unique<RotaryTable>(device_.get(), args.inv_freq, half, args.attention_scaling));
  }
  return (*table)->Get(num_positions_);
}

void CudaBackend::RopeAppend(const RopeAppendArgs& args) {
  const KvLayout& layout = *args.layout;
  if (args.rotary_dim % (2 * kVectorElements) != 0) Fatal("a rotary embedding of %d dimensions", args.rotary_dim);
  const int64_t num_heads = int64_t{args.batch->num_tokens} * (args.num_heads + 2 * layout.num_kv_heads);
  const Kernel<RopeAppendKernelArgs>& kernel = KernelsFor(layout).rope_append;
  device_->Launch(kernel,
                  RopeAppendKernelArgs{.qkv = static_cast<uint16_t*>(args.qkv),
                                       .positions = args.batch->positions,
                                       .slots = args.batch->slots,
                                       .rotary_table = Rotary(args),
                                       .q_norm = args.q_norm,
                                       .k_norm = args.k_norm,
                                       .norm_epsilon = args.norm_epsilon,
                                       .kv_pool = static_cast<char*>(args.kv_pool),
                                       .num_tokens = args.batch->num_tokens,
                                       .num_heads = args.num_heads,
                                       .num_kv_heads = layout.num_kv_heads,
                                       .block_size = layout.block_size,
                                       .rotary_dim = args.rotary_dim,
                                       .norms_after_rotation = args.norms_after_rotation,
                                       .query_growth = args.query_growth,
                                       .query_span = args.query_span},
                  NumBlocks(num_heads, kernel.num_threads / simt::kWarpSize));
}

void CudaBackend::Attention(const quire::AttentionArgs& args) {
  CheckOutput(args.out_type);
  attention_.Run(args, KernelsFor(*args.layout), int(args.batch - views_.data()));
}

void CudaBackend::GatherRows(const void* x, const int32_t* rows, int num_rows, int dim, void* y) {
  const int32_t* rows_on_device = output_rows_;
  if (num_output_rows_ == 0) {
    rows_arena_.Begin(UploadArena::BytesFor<int32_t>(num_rows));
    rows_on_device = rows_arena_.Add(rows, num_rows);
    rows_arena_.Upload();
  }
  device_->Launch(kernels_.gather_rows,
                  GatherRowsArgs{.x = static_cast<const uint16_t*>(x),
                                 .rows = rows_on_device,
                                 .y = static_cast<uint16_t*>(y),
                                 .num_rows = num_rows,
                                 .dim = dim,
                                 .written_rows = nullptr,
                                 .scale = 1},
                  NumBlocks(num_rows, GatherRowsKernel::kRowsPerBlock));
}

// The host waits for the copy, because it converts the values. So a step that ends a prompt to embed does not overlap
// with the step after it.
void CudaBackend::ReadRows(const void* x, int num_rows, int dim, float* values) {
  std::vector<uint16_t> rows(size_t(num_rows) * dim);
  CopyToHost(rows.data(), x, rows.size() * sizeof(uint16_t));
  const bool is_bfloat16 = element_ == DataType::kBFloat16;
  std::transform(rows.begin(), rows.end(), values, [is_bfloat16](uint16_t bits) {
    return is_bfloat16 ? ToFloat(BFloat16{bits}) : ToFloat(Float16{bits});
  });
}

void CudaBackend::Sample(const SamplingArgs& args) {
  if (num_output_rows_ == 0) {
    sampler_.Run(args);
  } else {
    sampler_.Launch(args.logits);
  }
}

void CudaBackend::CopyBlocks(const BlockCopyArgs& args) {
  const KvLayout& layout = *args.layout;
  for (int first = 0; first < args.num_copies; first += kMostCopies) {
    const int num_copies = std::min(kMostCopies, args.num_copies - first);
    copies_arena_.Begin(CopiesBytes(num_copies, layout.num_layers));
    CopyBlocksArgs kernel_args{};
    kernel_args.sources = copies_arena_.Add(args.sources + first, num_copies);
    kernel_args.destinations = copies_arena_.Add(args.destinations + first, num_copies);
    kernel_args.kv_pools = reinterpret_cast<char* const*>(copies_arena_.Add(args.kv_pools, layout.num_layers));
    kernel_args.num_copies = num_copies;
    kernel_args.num_layers = layout.num_layers;
    kernel_args.block_bytes = int64_t(layout.block_bytes());
    copies_arena_.Upload();
    device_->Launch(kernels_.copy_blocks, kernel_args, NumBlocks(int64_t{num_copies} * layout.num_layers, 1));
  }
}

void CudaBackend::SwapBlocks(const BlockSwapArgs& args) {
  const size_t bytes = args.layout->block_bytes();
  const int num_layers = args.layout->num_layers;
  pieces_.clear();
  for (int swap = 0; swap < args.num_swaps; ++swap) {
    for (int layer = 0; layer < num_layers; ++layer) {
      char* const block = static_cast<char*>(args.kv_pools[layer]) + args.blocks[swap] * bytes;
      char* const host =
          static_cast<char*>(args.host_pool) + (size_t{args.host_blocks[swap]} * num_layers + layer) * bytes;
      const bool is_out = args.direction == SwapDirection::kOut;
      pieces_.push_back({is_out ? host : block, is_out ? block : host, bytes});
    }
  }
  device_->CopyBatch(pieces_.data(), int(pieces_.size()));
}

}  // namespace quire::cuda
