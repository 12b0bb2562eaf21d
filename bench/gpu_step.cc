// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu_step.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/clocks.h"
#include "client/load/random.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/byte_matrix.h"
#include "kernels/cuda/quantized_matrix.h"
#include "kernels/forwarding_backend.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"
#include "worker/block_storage.h"
#include "worker/executor.h"

namespace quire {
namespace {

constexpr int kBlockSize = 16;
constexpr int kPatternSize = 1 << 22;  // Random numbers of a type.
constexpr int kWarmUpSteps = 4;        // The second step of a shape is recorded.

// Makes the weights of a model. All matrices repeat the same random numbers.
class MadeUpWeights {
 public:
  MadeUpWeights(const ModelConfig& config, std::optional<QuantizedFormat> layer_format, bool in_blocks,
                Backend* backend)
      : config_(config), layer_format_(layer_format), in_blocks_(in_blocks), backend_(backend) {
    BenchRandom random(1);
    for (BFloat16& value : values_) value = ToBFloat16(static_cast<float>(random.Next() % 2048) / 65536 - 1.0f / 64);
    if (!layer_format) return;
    // Numbers of both signs, around the zero point 8 in int4. No number of FP8 is a NaN.
    const bool is_int4 = *layer_format == QuantizedFormat::kInt4;
    for (int8_t& number : numbers_) {
      const uint64_t bits = random.Next();
      number = static_cast<int8_t>(is_int4 ? bits % 16 : bits % 127 | (bits >> 32 & 0x80));
    }
  }

  absl::StatusOr<ModelWeights> Make() {
    ModelWeights weights;
    const int hidden = config_.hidden_size, heads = config_.num_heads * config_.head_dim;
    QUIRE_ASSIGN_OR_RETURN(weights.embedding, Matrix(config_.vocab_size, hidden));
    step_bytes_ = 0;  // A step reads few rows of the embedding.
    for (int i = 0; i < config_.num_layers; ++i) {
      LayerWeights layer;
      QUIRE_ASSIGN_OR_RETURN(layer.input_norm, Ones(hidden));
      QUIRE_ASSIGN_OR_RETURN(layer.qkv, LayerMatrix(&quantized_.qkv, config_.qkv_rows(), hidden));
      QUIRE_ASSIGN_OR_RETURN(layer.attention_output, LayerMatrix(&quantized_.attention_output, hidden, heads));
      QUIRE_ASSIGN_OR_RETURN(layer.mlp_norm, Ones(hidden));
      // The GPU backend stacks the rows of gate and up.
      QUIRE_ASSIGN_OR_RETURN(layer.gate_up, LayerMatrix(&quantized_.gate_up, 2 * config_.intermediate_size, hidden));
      QUIRE_ASSIGN_OR_RETURN(layer.down, LayerMatrix(&quantized_.down, hidden, config_.intermediate_size));
      weights.layers.push_back(std::move(layer));
    }
    QUIRE_ASSIGN_OR_RETURN(weights.final_norm, Ones(hidden));
    QUIRE_ASSIGN_OR_RETURN(weights.lm_head, Matrix(config_.vocab_size, hidden));
    std::vector<float> inv_freq(config_.head_dim / 2);
    for (size_t i = 0; i < inv_freq.size(); ++i) {
      inv_freq[i] = static_cast<float>(std::pow(5e5, -2.0 * static_cast<double>(i) / config_.head_dim));
    }
    QUIRE_ASSIGN_OR_RETURN(weights.inv_freq, Vector(inv_freq));
    return weights;
  }

  // The bytes of the matrices of all layers and of the output matrix.
  int64_t step_bytes() const { return step_bytes_; }

 private:
  int GroupOf(QuantizedFormat format, int cols) const {
    if (format == QuantizedFormat::kInt8) return 0;
    if (format != QuantizedFormat::kFp8) return kMaxInt4Group;
    return in_blocks_ ? kFp8BlockSide : cols;
  }

  using QuantizedPointer = std::unique_ptr<cuda::DeviceMatrix>;

  static absl::Status NoMemory() { return absl::ResourceExhaustedError("no memory for the weights"); }

  // Returns views of `rows` rows in all, each of at most `most` rows.
  template <typename MakeView>
  static auto Stack(int rows, int most, const MakeView& make_view) {
    std::vector<decltype(make_view(0))> stack;
    for (int row = 0; row < rows; row += most) stack.push_back(make_view(std::min(most, rows - row)));
    return stack;
  }

  absl::StatusOr<std::unique_ptr<PackedMatrix>> Matrix(int rows, int cols) {
    const auto stack = Stack(rows, static_cast<int>(values_.size() / cols), [&](int count) {
      return MatrixView{.data = values_.data(), .rows = count, .cols = cols, .type = DataType::kBFloat16};
    });
    std::unique_ptr<PackedMatrix> matrix = backend_->Pack(stack.data(), static_cast<int>(stack.size()));
    if (matrix == nullptr) return NoMemory();
    step_bytes_ += int64_t{2} * rows * cols;
    return matrix;
  }

  // The first quantized matrix of a kind is packed and kept, and all others are copies of it.
  absl::StatusOr<std::unique_ptr<PackedMatrix>> LayerMatrix(QuantizedPointer* first, int rows, int cols) {
    if (!layer_format_) return Matrix(rows, cols);
    if (*first == nullptr) {
      const QuantizedMatrixView view = {.values = numbers_.data(),
                                        .scales = scales_.data(),
                                        .rows = rows,
                                        .cols = cols,
                                        .format = *layer_format_,
                                        .group = GroupOf(*layer_format_, cols),
                                        .zeros = zeros_.data(),
                                        .has_blocks = in_blocks_};
      const int most = static_cast<int>(numbers_.size() / cols);
      const auto stack = Stack(rows, in_blocks_ ? most / kFp8BlockSide * kFp8BlockSide : most, [&](int count) {
        QuantizedMatrixView part = view;
        part.rows = count;
        return part;
      });
      std::unique_ptr<PackedMatrix> packed = backend_->PackQuantized(stack.data(), static_cast<int>(stack.size()));
      if (packed == nullptr) return NoMemory();
      first->reset(static_cast<cuda::DeviceMatrix*>(packed.release()));
    }
    std::unique_ptr<PackedMatrix> copy;
    if (const cuda::ByteCudaMatrix* const bytes = (*first)->byte_matrix()) {
      copy = bytes->Copy();
      step_bytes_ += bytes->num_bytes();
    } else {
      copy = (*first)->quantized()->Copy();
      step_bytes_ += (*first)->quantized()->num_bytes();
    }
    if (copy == nullptr) return NoMemory();
    return copy;
  }

  absl::StatusOr<BackendBuffer> Vector(const std::vector<float>& values) {
    QUIRE_ASSIGN_OR_RETURN(BackendBuffer buffer,
                           BackendBuffer::Allocate(backend_, values.size() * sizeof(float), "a vector"));
    backend_->CopyToDevice(buffer.get(), values.data(), values.size() * sizeof(float));
    return buffer;
  }
  absl::StatusOr<BackendBuffer> Ones(int size) { return Vector(std::vector<float>(size, 1.0f)); }

  const ModelConfig& config_;
  const std::optional<QuantizedFormat> layer_format_;
  const bool in_blocks_;
  Backend* const backend_;
  // Matrices are stacks of the whole rows of these arrays.
  std::vector<BFloat16> values_ = std::vector<BFloat16>(kPatternSize);
  std::vector<int8_t> numbers_ = std::vector<int8_t>(kPatternSize);
  std::vector<float> scales_ = std::vector<float>(kPatternSize / kFp8GroupStep, 1.0f / 4096);
  std::vector<uint8_t> zeros_ = std::vector<uint8_t>(kPatternSize / kFp8GroupStep, 8);
  struct {
    QuantizedPointer qkv, attention_output, gate_up, down;
  } quantized_;
  int64_t step_bytes_ = 0;
};

// Makes step `step` of sequences that begin with `context_tokens` tokens. Their K and V are whatever the pool holds.
v1::StepPlan DecodeStep(const GpuStepOptions& options, int vocab_size, int step, int blocks_per_sequence) {
  v1::StepPlan plan;
  plan.set_step(step);
  for (int row = 0; row < options.num_sequences; ++row) {
    if (step == 1) {
      v1::SequenceStart* const start = plan.add_starts();
      start->set_row(row);
      start->set_sequence(row + 1);
      start->set_prompt_length(options.context_tokens);
      start->mutable_token_ids()->Resize(options.context_tokens, row % vocab_size);
      start->mutable_sampling()->set_top_p(1);
      start->mutable_sampling()->set_repetition_penalty(1);
    }
    plan.add_slice_rows(row);
    plan.add_slice_first_positions(options.context_tokens + step - 2);
    plan.add_slice_num_tokens(1);
    plan.add_slice_first_changed_blocks(0);
    plan.add_slice_tail_lengths(step == 1 ? blocks_per_sequence : 0);
    for (int i = 0; step == 1 && i < blocks_per_sequence; ++i) plan.add_block_tails(row * blocks_per_sequence + i);
    plan.mutable_slice_samples()->push_back(1);
  }
  return plan;
}

}  // namespace

ModelConfig Llama8B() {
  ModelConfig config{};
  config.architecture = "LlamaForCausalLM";
  config.torch_dtype = "bfloat16";
  config.hidden_size = 4096;
  config.intermediate_size = 14336;
  config.num_layers = 32;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.vocab_size = 128256;
  config.max_position_embeddings = 8192;
  config.rms_norm_eps = 1e-5f;
  config.rope.attention_factor = 1;
  config.attention_scale = 1 / std::sqrt(128.0f);
  config.layers.resize(config.num_layers);
  MakeOneCacheGroup(&config);
  return config;
}

// The GPU backend, whose layers are recorded only on demand.
class GpuStepBench::RecordingSwitch : public ForwardingBackend {
 public:
  explicit RecordingSwitch(std::unique_ptr<Backend> backend) : ForwardingBackend(std::move(backend)) {}
  LayerRecorder* layer_recorder() override { return is_on ? ForwardingBackend::layer_recorder() : nullptr; }

  bool is_on = true;
};

GpuStepBench::GpuStepBench(const ModelConfig& config, std::unique_ptr<cuda::Device> device, bool rounds_inputs)
    : backend_(std::make_unique<RecordingSwitch>(std::make_unique<cuda::CudaBackend>(
          std::move(device),
          cuda::CudaBackendOptions{.rounds_int8_inputs = rounds_inputs, .rounds_fp8_inputs = rounds_inputs}))),
      model_{.config = config, .weights = {}, .tokenizer_files = {}} {}

GpuStepBench::~GpuStepBench() = default;

absl::StatusOr<std::unique_ptr<GpuStepBench>> GpuStepBench::Create(const ModelConfig& config,
                                                                   std::optional<QuantizedFormat> layer_format,
                                                                   std::unique_ptr<cuda::Device> device,
                                                                   bool rounds_inputs, bool in_blocks) {
  std::unique_ptr<GpuStepBench> bench(new GpuStepBench(config, std::move(device), rounds_inputs));
  MadeUpWeights weights(bench->model_.config, layer_format, in_blocks, bench->backend_.get());
  QUIRE_ASSIGN_OR_RETURN(bench->model_.weights, weights.Make());
  bench->weight_bytes_ = weights.step_bytes();
  return bench;
}

absl::StatusOr<GpuStepTime> GpuStepBench::Measure(const GpuStepOptions& options) {
  const ModelConfig& config = model_.config;
  backend_->is_on = options.repeats_layers;
  const KvLayout layout = {.num_layers = config.num_layers,
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim,
                           .block_size = kBlockSize,
                           .type = KvType::kBFloat16};
  const int num_steps = kWarmUpSteps + options.num_steps;
  const int blocks_per_sequence = (options.context_tokens + num_steps) / kBlockSize + 1;
  const WorkerLimits limits = {.max_sequences = options.num_sequences,
                               .max_tokens_per_step = 512,
                               .max_context_tokens = config.max_position_embeddings,
                               .vocab_size = config.vocab_size,
                               .block_size = kBlockSize,
                               .num_blocks = static_cast<uint32_t>(options.num_sequences * blocks_per_sequence)};
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<BlockStorage> storage,
                         BlockStorage::Create(backend_.get(), layout, limits.num_blocks, /*num_host_blocks=*/0,
                                              /*prefault=*/false));
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Executor> executor,
                         Executor::Create(backend_.get(), &model_, storage.get(), limits, LogitRowsFor(limits)));
  GpuStepTime time;
  double start = 0;
  const auto finish = [&] {
    while (!executor->IsDone()) {
    }
    v1::StepResult result;
    const double before = WallSeconds();
    executor->Finish(&result);
    time.host_us += 1e6 * (WallSeconds() - before);
  };
  for (int step = 1; step <= num_steps; ++step) {
    if (step == kWarmUpSteps + 1) {
      while (executor->num_begun() > 0) finish();
      time.host_us = 0;
      start = WallSeconds();
    }
    const v1::StepPlan plan = DecodeStep(options, config.vocab_size, step, blocks_per_sequence);
    while (!executor->CanBegin(plan) || (!options.overlaps_steps && executor->num_begun() > 0)) {
      finish();
    }
    const double before = WallSeconds();
    QUIRE_RETURN_IF_ERROR(executor->Begin(plan));
    time.host_us += 1e6 * (WallSeconds() - before);
  }
  while (executor->num_begun() > 0) finish();
  time.step_us = 1e6 * (WallSeconds() - start) / options.num_steps;
  time.host_us /= options.num_steps;
  const int64_t context = options.context_tokens + kWarmUpSteps + options.num_steps / 2;
  time.step_bytes = weight_bytes_ + options.num_sequences * context *
                                        static_cast<int64_t>(layout.block_bytes_all_layers()) / kBlockSize;
  return time;
}

double CopyBandwidth(cuda::Device* device, size_t bytes) {
  constexpr int kCopies = 20;
  void* const from = device->Allocate(bytes);
  void* const to = device->Allocate(bytes);
  double bandwidth = 0;
  if (from != nullptr && to != nullptr) {
    device->Copy(to, from, bytes);
    device->Synchronize();
    const double start = WallSeconds();
    for (int i = 0; i < kCopies; ++i) device->Copy(to, from, bytes);
    device->Synchronize();
    bandwidth = 2.0 * kCopies * static_cast<double>(bytes) / (WallSeconds() - start);
  }
  if (from != nullptr) device->Free(from);
  if (to != nullptr) device->Free(to);
  return bandwidth;
}

}  // namespace quire
