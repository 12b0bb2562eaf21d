#include "worker/model/weights.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
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
  WeightReader(const ModelConfig& config, const Checkpoint& checkpoint, Backend* backend, LoadProgress* progress)
      : checkpoint_(checkpoint), backend_(backend), progress_(progress) {
    fingerprint_.Add(Summary(config));
  }

  // Stacks parts with the same number of columns in row order.
  absl::Status Matrix(const std::vector<MatrixPart>& parts, int cols, std::unique_ptr<PackedMatrix>* result);

  // Packs the two matrices of a gated MLP.
  absl::Status GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                           std::unique_ptr<PackedMatrix>* result);

  // Converts vectors to float32 and concatenates them.
  absl::Status Vector(const std::vector<MatrixPart>& parts, BackendBuffer* result);

  // Logs the tensors that were not read.
  void ReportUnused() const;

  std::string fingerprint() const { return fingerprint_.Hex(); }

 private:
  absl::StatusOr<const Tensor*> Take(const std::string& name, const std::vector<int64_t>& shape);
  // Appends copies of data that is not aligned to `bytes`, which keeps them until they are packed.
  absl::StatusOr<MatrixView> View(const MatrixPart& part, int cols, std::vector<AlignedBytes>* bytes);

  const Checkpoint& checkpoint_;
  Backend* const backend_;
  LoadProgress* const progress_;
  absl::flat_hash_set<std::string> used_;
  Fingerprint fingerprint_;
};

absl::StatusOr<const Tensor*> WeightReader::Take(const std::string& name, const std::vector<int64_t>& shape) {
  const std::string expected = absl::StrCat("[", absl::StrJoin(shape, ", "), "] of F32, BF16 or F16");
  const Tensor* tensor = checkpoint_.Find(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is missing, expected ", expected));
  }
  if (tensor->shape != shape || !WeightType(*tensor)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", expected ", expected));
  }
  // One such weight would make every step fail, and look like a bad request.
  if (const std::optional<size_t> index = FirstNotFinite(tensor->bytes, *WeightType(*tensor)); index.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, " is ", Describe(*tensor), ", and its element ",
                                                   *index, " is infinite or not a number"));
  }
  used_.insert(name);
  fingerprint_.Add(absl::StrCat(name, " ", Describe(*tensor)));
  fingerprint_.Add(tensor->bytes);
  progress_->Add(static_cast<int64_t>(tensor->bytes.size()));
  return tensor;
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

absl::Status WeightReader::GatedMatrix(const MatrixPart& gate, const MatrixPart& up, int cols,
                                       std::unique_ptr<PackedMatrix>* result) {
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
  QUIRE_RETURN_IF_ERROR(reader->Matrix(
      {{prefix + "q_proj.weight", q_rows}, {prefix + "k_proj.weight", kv_rows}, {prefix + "v_proj.weight", kv_rows}},
      config.hidden_size, &layer->qkv));
  QUIRE_RETURN_IF_ERROR(
      reader->Matrix({{prefix + "o_proj.weight", config.hidden_size}}, q_rows, &layer->attention_output));
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
  QUIRE_RETURN_IF_ERROR(reader->Matrix({{prefix + "down_proj.weight", config.hidden_size}}, width, &layer->down));
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
                                         LoadProgress* progress) {
  WeightReader reader(config, checkpoint, backend, progress);
  ModelWeights weights;
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
