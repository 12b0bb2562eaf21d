// SPDX-License-Identifier: Apache-2.0

#include "worker/model/weights.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/model/layer_check.h"
#include "worker/model/layer_stacks.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

absl::Status CheckPacked(const std::unique_ptr<PackedMatrix>& matrix, const MatrixPart& part) {
  if (matrix != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("no memory to pack tensor ", part.name));
}

// Checks that the backend multiplies by a matrix as it should, whose first part is `part`.
absl::Status CheckProducts(const std::unique_ptr<PackedMatrix>& matrix, const std::vector<QuantizedMatrixView>& views,
                           const MatrixPart& part, Backend* backend) {
  QUIRE_RETURN_IF_ERROR(CheckPacked(matrix, part));
  const BackendStatus status = backend->CheckQuantized(*matrix, views.data(), static_cast<int>(views.size()));
  if (status.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(backend->Description(), " multiplies by tensor ", part.name, " wrongly: ", status.message()));
}

absl::Status CheckQuantizedCols(const MatrixPart& part, int cols) {
  if (cols <= kMaxQuantizedCols) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("tensor ", part.name, " has ", cols,
                                                 " columns, a quantized matrix has at most ", kMaxQuantizedCols));
}

// Reads matrices and vectors of a checkpoint, and passes them to the backend. After the backend has copied a tensor,
// the reader releases the file's pages, so that at most one tensor is in memory twice.
class WeightReader {
 public:
  // `stored` says how quantized matrices are stored.
  WeightReader(const ModelConfig& config, const CheckpointQuantization& stored, const Checkpoint& checkpoint,
               Backend* backend, LoadProgress* progress, const WeightRounding& rounding)
      : adds_one_(config.norms_add_one),
        tensors_(checkpoint, progress,
                 stored.format == CheckpointFormat::kFp8 ? std::optional(stored.fp8_block) : std::nullopt),
        stored_(stored, &tensors_),
        backend_(backend),
        rounding_(rounding) {
    tensors_.AddToFingerprint(Summary(config));
  }

  // Stacks parts with the same number of columns in row order.
  absl::Status Matrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);
  // The same for a matrix of a layer, which may be quantized.
  absl::Status LayerMatrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);

  // Rounds a matrix to 8 bits.
  absl::Status Int8Matrix(const MatrixPart& part, int cols, std::unique_ptr<PackedMatrix>* result);

  // Packs the two matrices of a gated MLP, which may be quantized.
  absl::Status GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                           std::unique_ptr<PackedMatrix>* result);

  // Converts vectors to float32 and concatenates them.
  absl::Status Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result);
  // Reads the weights of a norm, and adds 1 if the model wants that.
  absl::Status Norm(const std::string& name, int dim, BackendBuffer* result);
  // Copies numbers that are not in the checkpoint.
  absl::Status Copy(const std::vector<float>& values, const char* what, BackendBuffer* result);

  // Logs the tensors that were not read, and returns an error if one would change the others.
  absl::Status CheckUnused(const ModelConfig& config) const { return tensors_.CheckUnused(config); }

  std::string fingerprint() const { return tensors_.fingerprint(); }

 private:
  // Appends copies of data that is not aligned to `bytes`, which keeps them until they are packed.
  absl::StatusOr<MatrixView> View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes);
  // Reads a matrix that is stored quantized, or rounds another one.
  absl::StatusOr<QuantizedMatrix> Quantized(const MatrixPart& part, int cols);
  // Reads a matrix of floating-point numbers and rounds it.
  absl::StatusOr<QuantizedMatrix> Rounded(const MatrixPart& part, int cols, Quantization width);
  absl::Status QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                 std::unique_ptr<PackedMatrix>* result);
  // Returns whether a stack is multiplied as quantized numbers. All its parts must be stored in the same way.
  absl::StatusOr<bool> IsQuantized(const std::vector<MatrixPart>& parts) const;

  const bool adds_one_;  // Whether 1 is added to the weights of norms.
  TensorReader tensors_;
  QuantizedReader stored_;
  Backend* const backend_;
  const WeightRounding rounding_;
};

absl::StatusOr<MatrixView> WeightReader::View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes) {
  const int tensor_rows = part.tensor_rows > 0 ? part.tensor_rows : part.rows;
  QUIRE_RETURN_IF_ERROR(stored_.Dequantize(part.name, tensor_rows, cols));
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Take(part.name, {tensor_rows, cols}));
  const size_t row_bytes = tensor->bytes.size() / tensor_rows;
  bytes->emplace_back(tensor->bytes.substr(part.first_row * row_bytes, part.rows * row_bytes));
  return MatrixView{bytes->back().data(), part.rows, cols, *WeightType(*tensor), part.NumSlices(cols, /*group=*/0)};
}

absl::Status WeightReader::Matrix(const std::vector<MatrixPart>& parts, int cols,
                                  std::unique_ptr<PackedMatrix>* result) {
  std::vector<MatrixView> views;
  std::vector<AlignedBytes> bytes;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(views.emplace_back(), View(part, cols, &bytes));
  }
  *result = backend_->Pack(views.data(), static_cast<int>(views.size()));
  for (const MatrixPart& part : parts) tensors_.Release(part.name);
  return CheckPacked(*result, parts.front());
}

absl::Status WeightReader::LayerMatrix(const std::vector<MatrixPart>& parts, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized(parts));
  return is_quantized ? QuantizedMatrices(parts, cols, /*is_gated=*/false, result) : Matrix(parts, cols, result);
}

absl::StatusOr<bool> WeightReader::IsQuantized(const std::vector<MatrixPart>& parts) const {
  if (rounding_.layers != Quantization::kNone) return true;
  const bool is_quantized = stored_.Stores(parts.front().name);
  for (const MatrixPart& part : parts) {
    if (stored_.Stores(part.name) == is_quantized) continue;
    if (stored_.CanDequantize()) return false;
    return absl::InvalidArgumentError(absl::StrCat("of the tensors ", parts.front().name, " and ", part.name,
                                                   " only one is quantized; they are multiplied together, so both must "
                                                   "be"));
  }
  return is_quantized;
}

template <typename T>
std::vector<T> Part(const std::vector<T>& entries, size_t row_size, int first_row, int rows) {
  if (entries.empty()) return {};
  const auto first = entries.begin() + static_cast<int64_t>(first_row * row_size);
  return {first, first + static_cast<int64_t>(rows * row_size)};
}

// Returns some rows of a matrix. Every row has its own scales, also in a matrix of FP8 with blocks, so the rows may
// begin and end inside of a block.
QuantizedMatrix RowsOf(const QuantizedMatrix& matrix, int first_row, int rows) {
  const size_t groups = matrix.group == 0 ? 1 : matrix.num_groups();
  return {.values = Part(matrix.values, matrix.cols, first_row, rows),
          .scales = Part(matrix.scales, groups, first_row, rows),
          .rows = rows,
          .cols = matrix.cols,
          .group = matrix.group,
          .zeros = Part(matrix.zeros, groups, first_row, rows),
          .order = matrix.order,
          .is_fp8 = matrix.is_fp8,
          .has_blocks = matrix.has_blocks};
}

absl::StatusOr<QuantizedMatrix> WeightReader::Quantized(const MatrixPart& part, int cols) {
  if (rounding_.layers != Quantization::kNone) return Rounded(part, cols, rounding_.layers);
  if (part.tensor_rows == 0) return stored_.Read(part.name, part.rows, cols);
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix stack, stored_.Read(part.name, part.tensor_rows, cols));
  return RowsOf(stack, part.first_row, part.rows);
}

absl::StatusOr<QuantizedMatrix> WeightReader::Rounded(const MatrixPart& part, int cols, Quantization width) {
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView view, View(part, cols, &bytes));
  QuantizedMatrix matrix = width == Quantization::kInt8 ? QuantizeToInt8(view) : QuantizeToInt4(view);
  tensors_.Release(part.name);
  return matrix;
}

absl::Status WeightReader::Int8Matrix(const MatrixPart& part, int cols, std::unique_ptr<PackedMatrix>* result) {
  QUIRE_RETURN_IF_ERROR(CheckQuantizedCols(part, cols));
  QUIRE_ASSIGN_OR_RETURN(const QuantizedMatrix matrix, Rounded(part, cols, Quantization::kInt8));
  const std::vector<QuantizedMatrixView> views = {matrix.View(rounding_.int4_inputs)};
  *result = backend_->PackQuantized(views.data(), 1);
  return CheckProducts(*result, views, part, backend_);
}

absl::Status WeightReader::QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                             std::unique_ptr<PackedMatrix>* result) {
  QUIRE_RETURN_IF_ERROR(CheckQuantizedCols(parts.front(), cols));
  std::vector<QuantizedMatrix> matrices;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(matrices.emplace_back(), Quantized(part, cols));
  }
  for (size_t i = 1; i < matrices.size(); ++i) {
    if (matrices[i].order == matrices[0].order) continue;
    return absl::InvalidArgumentError(absl::StrCat("the tensors ", parts[0].name, " and ", parts[i].name,
                                                   " have different groups of columns (g_idx); they are multiplied "
                                                   "together, so the groups must be the same"));
  }
  std::vector<QuantizedMatrixView> views;
  for (const QuantizedMatrix& matrix : matrices) {
    views.push_back(matrix.View(rounding_.int4_inputs));
    views.back().num_slices = parts.front().NumSlices(cols, matrix.group);
  }
  *result = is_gated ? backend_->PackGatedQuantized(views[0], views[1])
                     : backend_->PackQuantized(views.data(), static_cast<int>(views.size()));
  return CheckProducts(*result, views, parts.front(), backend_);
}

absl::Status WeightReader::GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized({gate, up}));
  if (is_quantized) return QuantizedMatrices({gate, up}, cols, /*is_gated=*/true, result);
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView gate_view, View(gate, cols, &bytes));
  QUIRE_ASSIGN_OR_RETURN(const MatrixView up_view, View(up, cols, &bytes));
  *result = backend_->PackGated(gate_view, up_view);
  for (const MatrixPart* part : {&gate, &up}) tensors_.Release(part->name);
  return CheckPacked(*result, gate);
}

absl::Status WeightReader::Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result) {
  std::vector<float> values;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Take(part.name, {part.rows}));
    AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
  }
  return Copy(values, parts.front().name.c_str(), result);
}

absl::Status WeightReader::Norm(const std::string& name, int dim, BackendBuffer* result) {
  std::vector<float> values;
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, tensors_.Take(name, {dim}));
  AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
  if (adds_one_) {
    for (float& value : values) value += 1;
  }
  return Copy(values, name.c_str(), result);
}

absl::Status WeightReader::Copy(const std::vector<float>& values, const char* what, BackendBuffer* result) {
  const size_t bytes = values.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(*result, BackendBuffer::Allocate(backend_, bytes, what));
  backend_->CopyToDevice(result->get(), values.data(), bytes);
  return absl::OkStatus();
}

absl::Status LoadAttention(const ModelConfig& config, const std::string& prefix, const LayerStacks& stacks,
                           WeightReader* reader, LayerWeights* layer) {
  const int q_rows = config.num_heads * config.head_dim;
  const int kv_rows = config.num_kv_heads * config.head_dim;
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.qkv, config.hidden_size, &layer->qkv));
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.attention_output, q_rows, &layer->attention_output));
  if (config.qkv_bias) {
    QUIRE_RETURN_IF_ERROR(reader->Vector(
        {{prefix + "q_proj.bias", q_rows}, {prefix + "k_proj.bias", kv_rows}, {prefix + "v_proj.bias", kv_rows}},
        &layer->qkv_bias));
  }
  if (config.attention_output_bias) {
    QUIRE_RETURN_IF_ERROR(
        reader->Vector({{prefix + "o_proj.bias", config.hidden_size}}, &layer->attention_output_bias));
  }
  if (config.qk_norm != QkNorm::kNone) {
    const bool is_whole = config.qk_norm == QkNorm::kWhole;
    QUIRE_RETURN_IF_ERROR(reader->Norm(prefix + "q_norm.weight", is_whole ? q_rows : config.head_dim, &layer->q_norm));
    QUIRE_RETURN_IF_ERROR(reader->Norm(prefix + "k_norm.weight", is_whole ? kv_rows : config.head_dim, &layer->k_norm));
  }
  return absl::OkStatus();
}

absl::Status LoadMlp(const ModelConfig& config, const std::string& prefix, const LayerStacks& stacks,
                     WeightReader* reader, LayerWeights* layer) {
  const int width = config.intermediate_size;
  QUIRE_RETURN_IF_ERROR(reader->GatedMatrix(stacks.gate_up[0], stacks.gate_up[1], config.hidden_size, &layer->gate_up));
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(stacks.down, width, &layer->down));
  if (config.mlp_bias) {
    QUIRE_RETURN_IF_ERROR(
        reader->Vector({{prefix + "gate_proj.bias", width}, {prefix + "up_proj.bias", width}}, &layer->gate_up_bias));
    QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "down_proj.bias", config.hidden_size}}, &layer->down_bias));
  }
  return absl::OkStatus();
}

absl::Status LoadLayer(const ModelConfig& config, int index, WeightReader* reader, LayerWeights* layer) {
  const std::string prefix = absl::StrCat(kLayersPrefix, index, ".");
  const LayerStacks stacks = StacksOfLayer(config, index);
  // In models that normalize only inputs, the norm of the MLP's input has the name that is elsewhere the name of the
  // norm of attention's output.
  const struct {
    const char* name;
    BackendBuffer* weights;
    std::initializer_list<NormPlacement> placements;
  } norms[] = {
      {"input_layernorm", &layer->input_norm, {NormPlacement::kBefore, NormPlacement::kBoth}},
      {"post_attention_layernorm", &layer->mlp_norm, {NormPlacement::kBefore}},
      {"post_attention_layernorm", &layer->attention_output_norm, {NormPlacement::kAfter, NormPlacement::kBoth}},
      {"pre_feedforward_layernorm", &layer->mlp_norm, {NormPlacement::kBoth}},
      {"post_feedforward_layernorm", &layer->mlp_output_norm, {NormPlacement::kAfter, NormPlacement::kBoth}},
  };
  for (const auto& [name, weights, placements] : norms) {
    if (std::find(placements.begin(), placements.end(), config.norms) == placements.end()) continue;
    QUIRE_RETURN_IF_ERROR(reader->Norm(absl::StrCat(prefix, name, ".weight"), config.hidden_size, weights));
  }
  QUIRE_RETURN_IF_ERROR(LoadAttention(config, prefix + "self_attn.", stacks, reader, layer));
  return LoadMlp(config, prefix + "mlp.", stacks, reader, layer);
}

absl::Status LoadRotations(const ModelConfig& config, WeightReader* reader, ModelWeights* weights) {
  constexpr const char* kWhat = "rotary frequencies";
  const int rotary_dim = RotaryDim(config.rope, config.head_dim);
  QUIRE_RETURN_IF_ERROR(reader->Copy(InverseFrequencies(config.rope, rotary_dim), kWhat, &weights->inv_freq));
  if (config.window_rope.has_value()) {
    QUIRE_RETURN_IF_ERROR(
        reader->Copy(InverseFrequencies(*config.window_rope, config.head_dim), kWhat, &weights->window_inv_freq));
  }
  return reader->Copy(std::vector<float>(config.head_dim / 2), kWhat, &weights->no_inv_freq);
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend,
                                         LoadProgress* progress, const WeightRounding& rounding) {
  QUIRE_ASSIGN_OR_RETURN(
      const CheckpointQuantization format,
      ReadAs(config.quantization, rounding.layers, backend->MultipliesQuantized(), backend->MultipliesFp8()));
  const Quantization stored = format.width();
  if (const std::string extra = ExtraLayers(config, checkpoint); !extra.empty()) {
    QUIRE_LOG(kWarning) << extra;
  }
  WeightReader reader(config, format, checkpoint, backend, progress, rounding);
  ModelWeights weights;
  weights.rounding = rounding;
  if (stored != Quantization::kNone) weights.rounding.layers = stored;
  const bool is_quantized = weights.rounding.layers != Quantization::kNone || rounding.output;
  if (is_quantized && !backend->MultipliesQuantized()) {
    return absl::FailedPreconditionError(
        absl::StrCat(backend->Description(), " cannot multiply quantized weights; a CPU can"));
  }
  if (config.denies_own_output) {
    QUIRE_LOG(kWarning) << "config.json says that the output matrix is the embedding (tie_word_embeddings), but "
                        << kOutputName << " and " << kEmbeddingName
                        << " differ; both are used, as in Transformers 5; set tie_word_embeddings to false";
  }
  const char* const embedding = EmbeddingName(config, checkpoint);
  QUIRE_RETURN_IF_ERROR(reader.Matrix({{embedding, config.vocab_size}}, config.hidden_size, &weights.embedding));
  for (int i = 0; i < config.num_layers; ++i) {
    weights.layers.emplace_back();
    QUIRE_RETURN_IF_ERROR(LoadLayer(config, i, &reader, &weights.layers.back()));
  }
  QUIRE_RETURN_IF_ERROR(reader.Norm("model.norm.weight", config.hidden_size, &weights.final_norm));
  const MatrixPart output = {config.tie_word_embeddings ? embedding : kOutputName, config.vocab_size};
  if (rounding.output) {
    QUIRE_RETURN_IF_ERROR(reader.Int8Matrix(output, config.hidden_size, &weights.lm_head));
  } else if (!config.tie_word_embeddings) {
    QUIRE_RETURN_IF_ERROR(reader.Matrix({output}, config.hidden_size, &weights.lm_head));
  }
  QUIRE_RETURN_IF_ERROR(LoadRotations(config, &reader, &weights));
  QUIRE_RETURN_IF_ERROR(reader.CheckUnused(config));
  weights.fingerprint = reader.fingerprint();
  return weights;
}

}  // namespace quire
