#include "worker/model/weights.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status.h"
#include "worker/model/fingerprint.h"
#include "worker/model/mapped_file.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

// One matrix of a stack, for example Q, K or V of the fused projection.
struct MatrixPart {
  std::string name;
  int rows;
};

absl::Status CheckPacked(const std::unique_ptr<PackedMatrix>& matrix, const MatrixPart& part) {
  if (matrix != nullptr) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("no memory to pack tensor ", part.name));
}

// Reads tensors of a checkpoint by name, checks them, and passes them to the backend. It remembers which tensors it has
// read. After the backend has copied a tensor, the reader releases the file's pages, so that at most one tensor is in
// memory twice.
class WeightReader {
 public:
  WeightReader(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend, LoadProgress* progress,
               Quantization quantize)
      : checkpoint_(checkpoint),
        backend_(backend),
        progress_(progress),
        quantize_(quantize),
        stored_(config.quantization) {
    fingerprint_.Add(Summary(config));
  }

  // Stacks parts with the same number of columns in row order.
  absl::Status Matrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);
  // The same for a matrix of a layer, which may be quantized.
  absl::Status LayerMatrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);

  // Packs the two matrices of a gated MLP, which may be quantized.
  absl::Status GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                           std::unique_ptr<PackedMatrix>* result);

  // Converts vectors to float32 and concatenates them.
  absl::Status Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result);

  // Logs the tensors that were not read.
  void ReportUnused() const;

  std::string fingerprint() const { return fingerprint_.Hex(); }

 private:
  absl::StatusOr<const Tensor*> Take(const std::string& name, const std::vector<int64_t>& shape);
  // Returns the tensor if it is what is expected.
  absl::StatusOr<const Tensor*> Find(const std::string& name, const std::string& expected,
                                     absl::FunctionRef<bool(const Tensor&)> is_expected) const;
  // Notes that the tensor is used.
  void Count(const Tensor& tensor);
  // Appends copies of data that is not aligned to `bytes`, which keeps them until they are packed.
  absl::StatusOr<MatrixView> View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes);
  // Whether the checkpoint stores the matrix in 8 bits.
  bool StoresInt8(const MatrixPart& part) const;
  // Reads a matrix that is stored in 8 bits, or rounds the elements of another one.
  absl::StatusOr<QuantizedMatrix> Quantized(const MatrixPart& part, int cols);
  absl::StatusOr<QuantizedMatrix> StoredInt8(const MatrixPart& part, int cols);
  // Reads one scale per row, or one for the whole matrix, into a scale per row.
  absl::StatusOr<std::vector<float>> Scales(const MatrixPart& part);
  absl::Status QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                 std::unique_ptr<PackedMatrix>* result);
  // Whether a stack is multiplied in 8 bits. All its parts must be stored in the same way.
  absl::StatusOr<bool> IsQuantized(const std::vector<MatrixPart>& parts) const;

  const Checkpoint& checkpoint_;
  Backend* const backend_;
  LoadProgress* const progress_;
  const Quantization quantize_;  // What is done to matrices that are stored as floating-point numbers.
  const Quantization stored_;    // What config.json says of the checkpoint.
  absl::flat_hash_set<std::string> used_;
  Fingerprint fingerprint_;
};

absl::StatusOr<const Tensor*> WeightReader::Take(const std::string& name, const std::vector<int64_t>& shape) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor,
                         Find(name, absl::StrCat("[", absl::StrJoin(shape, ", "), "] of F32, BF16 or F16"),
                              [&](const Tensor& found) { return found.shape == shape && WeightType(found); }));
  // One such weight would make every step fail, and look like a bad request.
  if (const std::optional<size_t> index = FirstNotFinite(tensor->bytes, *WeightType(*tensor)); index.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", and its element ",
                                                   *index, " is infinite or not a number"));
  }
  Count(*tensor);
  return tensor;
}

absl::StatusOr<const Tensor*> WeightReader::Find(const std::string& name, const std::string& expected,
                                                 absl::FunctionRef<bool(const Tensor&)> is_expected) const {
  const Tensor* tensor = checkpoint_.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing, expected ", expected));
  }
  if (is_expected(*tensor)) return tensor;
  return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", expected ", expected));
}

void WeightReader::Count(const Tensor& tensor) {
  used_.insert(tensor.name);
  fingerprint_.Add(absl::StrCat(tensor.name, " ", Describe(tensor)));
  fingerprint_.Add(tensor.bytes);
  progress_->Add(static_cast<int64_t>(tensor.bytes.size()));
}

absl::StatusOr<MatrixView> WeightReader::View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes) {
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, Take(part.name, {part.rows, cols}));
  bytes->emplace_back(tensor->bytes);
  return MatrixView{bytes->back().data(), part.rows, cols, *WeightType(*tensor)};
}

absl::Status WeightReader::Matrix(const std::vector<MatrixPart>& parts, int cols,
                                  std::unique_ptr<PackedMatrix>* result) {
  std::vector<MatrixView> views;
  std::vector<AlignedBytes> bytes;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(views.emplace_back(), View(part, cols, &bytes));
  }
  *result = backend_->Pack(views.data(), static_cast<int>(views.size()));
  for (const MatrixPart& part : parts) ReleasePages(checkpoint_.Find(part.name)->bytes);
  return CheckPacked(*result, parts.front());
}

absl::Status WeightReader::LayerMatrix(const std::vector<MatrixPart>& parts, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized(parts));
  return is_quantized ? QuantizedMatrices(parts, cols, /*is_gated=*/false, result) : Matrix(parts, cols, result);
}

bool WeightReader::StoresInt8(const MatrixPart& part) const {
  const Tensor* tensor = checkpoint_.Find(part.name);
  return stored_ == Quantization::kInt8 && tensor != nullptr && tensor->dtype == "I8";
}

absl::StatusOr<bool> WeightReader::IsQuantized(const std::vector<MatrixPart>& parts) const {
  if (quantize_ == Quantization::kInt8) return true;
  for (const MatrixPart& part : parts) {
    if (StoresInt8(part) == StoresInt8(parts.front())) continue;
    return absl::InvalidArgumentError(absl::StrCat("of the tensors ", parts.front().name, " and ", part.name,
                                                   " only one is I8; they are multiplied together, so both must be"));
  }
  return StoresInt8(parts.front());
}

absl::StatusOr<QuantizedMatrix> WeightReader::Quantized(const MatrixPart& part, int cols) {
  if (StoresInt8(part)) return StoredInt8(part, cols);
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView view, View(part, cols, &bytes));
  return QuantizeToInt8(view);
}

absl::StatusOr<QuantizedMatrix> WeightReader::StoredInt8(const MatrixPart& part, int cols) {
  const std::vector<int64_t> shape = {part.rows, cols};
  QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, Find(part.name, absl::StrCat("[", part.rows, ", ", cols, "] of I8"),
                                                    [&](const Tensor& found) { return found.shape == shape; }));
  Count(*tensor);
  const auto* values = reinterpret_cast<const int8_t*>(tensor->bytes.data());
  QuantizedMatrix matrix{{values, values + tensor->bytes.size()}, {}, part.rows, cols};
  QUIRE_ASSIGN_OR_RETURN(matrix.scales, Scales(part));
  return matrix;
}

absl::StatusOr<std::vector<float>> WeightReader::Scales(const MatrixPart& part) {
  const std::string name = part.name + "_scale";
  const std::vector<int64_t> per_row = {part.rows, 1};
  QUIRE_ASSIGN_OR_RETURN(
      const Tensor* tensor,
      Find(name, absl::StrCat("[", part.rows, ", 1] or [1] of F32, BF16 or F16"), [&](const Tensor& found) {
        const bool is_single = found.shape.empty() || found.shape == std::vector<int64_t>{1};
        return WeightType(found) && (found.shape == per_row || is_single);
      }));
  QUIRE_ASSIGN_OR_RETURN(tensor, Take(name, tensor->shape));
  std::vector<float> scales;
  AppendAsFloat(tensor->bytes, *WeightType(*tensor), &scales);
  if (scales.size() == 1) scales.resize(part.rows, scales.front());
  return scales;
}

absl::Status WeightReader::QuantizedMatrices(const std::vector<MatrixPart>& parts, int cols, bool is_gated,
                                             std::unique_ptr<PackedMatrix>* result) {
  if (cols > kMaxQuantizedCols) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", parts.front().name, " has ", cols,
                                                   " columns, a quantized matrix has at most ", kMaxQuantizedCols));
  }
  std::vector<QuantizedMatrix> matrices;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(matrices.emplace_back(), Quantized(part, cols));
    ReleasePages(checkpoint_.Find(part.name)->bytes);
  }
  std::vector<QuantizedMatrixView> views;
  for (const QuantizedMatrix& matrix : matrices) views.push_back(matrix.View());
  *result = is_gated ? backend_->PackGatedQuantized(views[0], views[1])
                     : backend_->PackQuantized(views.data(), static_cast<int>(views.size()));
  return CheckPacked(*result, parts.front());
}

absl::Status WeightReader::GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
  QUIRE_ASSIGN_OR_RETURN(const bool is_quantized, IsQuantized({gate, up}));
  if (is_quantized) return QuantizedMatrices({gate, up}, cols, /*is_gated=*/true, result);
  std::vector<AlignedBytes> bytes;
  QUIRE_ASSIGN_OR_RETURN(const MatrixView gate_view, View(gate, cols, &bytes));
  QUIRE_ASSIGN_OR_RETURN(const MatrixView up_view, View(up, cols, &bytes));
  *result = backend_->PackGated(gate_view, up_view);
  for (const MatrixPart* part : {&gate, &up}) ReleasePages(checkpoint_.Find(part->name)->bytes);
  return CheckPacked(*result, gate);
}

absl::Status WeightReader::Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result) {
  std::vector<float> values;
  for (const MatrixPart& part : parts) {
    QUIRE_ASSIGN_OR_RETURN(const Tensor* tensor, Take(part.name, {part.rows}));
    AppendAsFloat(tensor->bytes, *WeightType(*tensor), &values);
  }
  const size_t bytes = values.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(*result, BackendBuffer::Allocate(backend_, bytes, parts.front().name.c_str()));
  backend_->CopyToDevice(result->get(), values.data(), bytes);
  return absl::OkStatus();
}

void WeightReader::ReportUnused() const {
  int num_unused = 0;
  std::string first;
  for (const std::string& name : checkpoint_.Names()) {
    // Old checkpoints contain the rotary table. A checkpoint with a tied output matrix may contain that matrix as well.
    if (used_.contains(name) || absl::EndsWith(name, "rotary_emb.inv_freq") || name == "lm_head.weight") continue;
    if (num_unused++ == 0) first = name;
  }
  if (num_unused == 0) return;
  QUIRE_LOG(kWarning) << "ignored " << num_unused << " unknown tensors, the first is " << first;
}

absl::Status LoadAttention(const ModelConfig& config, const std::string& prefix, WeightReader* reader,
                           LayerWeights* layer) {
  const int q_rows = config.num_heads * config.head_dim;
  const int kv_rows = config.num_kv_heads * config.head_dim;
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix(
      {{prefix + "q_proj.weight", q_rows}, {prefix + "k_proj.weight", kv_rows}, {prefix + "v_proj.weight", kv_rows}},
      config.hidden_size, &layer->qkv));
  QUIRE_RETURN_IF_ERROR(
      reader->LayerMatrix({{prefix + "o_proj.weight", config.hidden_size}}, q_rows, &layer->attention_output));
  if (config.qkv_bias) {
    QUIRE_RETURN_IF_ERROR(reader->Vector(
        {{prefix + "q_proj.bias", q_rows}, {prefix + "k_proj.bias", kv_rows}, {prefix + "v_proj.bias", kv_rows}},
        &layer->qkv_bias));
  }
  if (config.attention_output_bias) {
    QUIRE_RETURN_IF_ERROR(
        reader->Vector({{prefix + "o_proj.bias", config.hidden_size}}, &layer->attention_output_bias));
  }
  if (config.qk_norm) {
    QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "q_norm.weight", config.head_dim}}, &layer->q_norm));
    QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "k_norm.weight", config.head_dim}}, &layer->k_norm));
  }
  return absl::OkStatus();
}

absl::Status LoadMlp(const ModelConfig& config, const std::string& prefix, WeightReader* reader, LayerWeights* layer) {
  const int width = config.intermediate_size;
  QUIRE_RETURN_IF_ERROR(reader->GatedMatrix({prefix + "gate_proj.weight", width}, {prefix + "up_proj.weight", width},
                                            config.hidden_size, &layer->gate_up));
  QUIRE_RETURN_IF_ERROR(reader->LayerMatrix({{prefix + "down_proj.weight", config.hidden_size}}, width, &layer->down));
  if (config.mlp_bias) {
    QUIRE_RETURN_IF_ERROR(
        reader->Vector({{prefix + "gate_proj.bias", width}, {prefix + "up_proj.bias", width}}, &layer->gate_up_bias));
    QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "down_proj.bias", config.hidden_size}}, &layer->down_bias));
  }
  return absl::OkStatus();
}

absl::Status LoadLayer(const ModelConfig& config, const std::string& prefix, WeightReader* reader,
                       LayerWeights* layer) {
  QUIRE_RETURN_IF_ERROR(reader->Vector({{prefix + "input_layernorm.weight", config.hidden_size}}, &layer->input_norm));
  QUIRE_RETURN_IF_ERROR(LoadAttention(config, prefix + "self_attn.", reader, layer));
  QUIRE_RETURN_IF_ERROR(
      reader->Vector({{prefix + "post_attention_layernorm.weight", config.hidden_size}}, &layer->mlp_norm));
  return LoadMlp(config, prefix + "mlp.", reader, layer);
}

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend,
                                         LoadProgress* progress, Quantization quantize) {
  if (quantize != Quantization::kNone && config.quantization != Quantization::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint is quantized already, so --quantize must be none, not ", Name(quantize)));
  }
  WeightReader reader(config, checkpoint, backend, progress, quantize);
  ModelWeights weights;
  weights.quantization = config.quantization == Quantization::kNone ? quantize : config.quantization;
  if (weights.quantization != Quantization::kNone && !backend->MultipliesQuantized()) {
    return absl::FailedPreconditionError(
        absl::StrCat(backend->Description(), " cannot multiply quantized weights; a CPU can"));
  }
  QUIRE_RETURN_IF_ERROR(
      reader.Matrix({{"model.embed_tokens.weight", config.vocab_size}}, config.hidden_size, &weights.embedding));
  for (int i = 0; i < config.num_layers; ++i) {
    weights.layers.emplace_back();
    QUIRE_RETURN_IF_ERROR(LoadLayer(config, absl::StrCat("model.layers.", i, "."), &reader, &weights.layers.back()));
  }
  QUIRE_RETURN_IF_ERROR(reader.Vector({{"model.norm.weight", config.hidden_size}}, &weights.final_norm));
  if (!config.tie_word_embeddings) {
    QUIRE_RETURN_IF_ERROR(reader.Matrix({{"lm_head.weight", config.vocab_size}}, config.hidden_size, &weights.lm_head));
  }
  const std::vector<float> inv_freq = InverseFrequencies(config.rope, config.head_dim);
  const size_t bytes = inv_freq.size() * sizeof(float);
  QUIRE_ASSIGN_OR_RETURN(weights.inv_freq, BackendBuffer::Allocate(backend, bytes, "rotary frequencies"));
  backend->CopyToDevice(weights.inv_freq.get(), inv_freq.data(), bytes);
  reader.ReportUnused();
  weights.fingerprint = reader.fingerprint();
  return weights;
}

}  // namespace quire
