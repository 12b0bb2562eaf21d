// SPDX-License-Identifier: Apache-2.0

#include "tools/make_model/model_shape.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tools/make_model/tokenizer_files.h"
#include "worker/model/tensor.h"

namespace quire::make_model {
namespace {

constexpr int kMaxDimension = 1 << 20;
constexpr int kMaxExperts = 4096;

// Half the width of a uniform distribution with this standard deviation.
double Width(double deviation) {
  return std::sqrt(3.0) * deviation;
}

// Collects specs: matrices that keep the variance of their input, norms near 1, small biases.
class SpecList {
 public:
  void Matrix(const std::string& name, int rows, int cols, double gain = 1.0) {
    specs_.push_back({name, {rows, cols}, 0.0, Width(gain / std::sqrt(static_cast<double>(cols)))});
  }
  void Norm(const std::string& name, int size) { specs_.push_back({name, {size}, 1.0, 0.2}); }
  void Bias(const std::string& name, int size) { specs_.push_back({name, {size}, 0.0, 0.2}); }

  std::vector<TensorSpec> Take() { return std::move(specs_); }

 private:
  std::vector<TensorSpec> specs_;
};

bool HasExperts(const ModelShape& shape) {
  return shape.family == "qwen3_moe";
}

void AddMlp(const std::string& prefix, int dim, int ffn, SpecList* specs) {
  specs->Matrix(prefix + "gate_proj.weight", ffn, dim);
  specs->Matrix(prefix + "up_proj.weight", ffn, dim);
  specs->Matrix(prefix + "down_proj.weight", dim, ffn);
}

void AddLayer(const ModelShape& shape, const std::string& prefix, SpecList* specs) {
  const int q_rows = shape.heads * shape.head_dim;
  const int kv_rows = shape.kv_heads * shape.head_dim;
  specs->Norm(prefix + "input_layernorm.weight", shape.dim);
  specs->Matrix(prefix + "self_attn.q_proj.weight", q_rows, shape.dim);
  specs->Matrix(prefix + "self_attn.k_proj.weight", kv_rows, shape.dim);
  specs->Matrix(prefix + "self_attn.v_proj.weight", kv_rows, shape.dim);
  specs->Matrix(prefix + "self_attn.o_proj.weight", shape.dim, q_rows);
  if (shape.family == "qwen2") {
    specs->Bias(prefix + "self_attn.q_proj.bias", q_rows);
    specs->Bias(prefix + "self_attn.k_proj.bias", kv_rows);
    specs->Bias(prefix + "self_attn.v_proj.bias", kv_rows);
  }
  if (shape.family == "qwen3" || HasExperts(shape)) {
    specs->Norm(prefix + "self_attn.q_norm.weight", shape.head_dim);
    specs->Norm(prefix + "self_attn.k_norm.weight", shape.head_dim);
  }
  specs->Norm(prefix + "post_attention_layernorm.weight", shape.dim);
  if (!HasExperts(shape)) return AddMlp(prefix + "mlp.", shape.dim, shape.ffn, specs);
  specs->Matrix(prefix + "mlp.gate.weight", shape.experts, shape.dim);
  for (int i = 0; i < shape.experts; ++i) {
    AddMlp(absl::StrCat(prefix, "mlp.experts.", i, "."), shape.dim, shape.expert_ffn, specs);
  }
}

std::string Architecture(const std::string& family) {
  if (family == "llama") return "LlamaForCausalLM";
  if (family == "mistral") return "MistralForCausalLM";
  if (family == "qwen2") return "Qwen2ForCausalLM";
  if (family == "qwen3") return "Qwen3ForCausalLM";
  if (family == "qwen3_moe") return "Qwen3MoeForCausalLM";
  return "";
}

// Sets the sizes of experts that are 0.
std::string CompleteExperts(ModelShape* shape) {
  if (!HasExperts(*shape)) {
    const bool has_sizes = shape->experts != 0 || shape->experts_per_token != 0 || shape->expert_ffn != 0;
    return has_sizes ? "--experts, --experts_per_token and --expert_ffn are for --family=qwen3_moe" : "";
  }
  if (shape->experts == 0) shape->experts = 8;
  if (shape->experts_per_token == 0) shape->experts_per_token = 2;
  if (shape->expert_ffn == 0) shape->expert_ffn = shape->ffn / 2;
  const struct {
    const char* flag;
    int value, max;
  } sizes[] = {{"experts", shape->experts, kMaxExperts},
               {"experts_per_token", shape->experts_per_token, shape->experts},
               {"expert_ffn", shape->expert_ffn, kMaxDimension}};
  for (const auto& [flag, value, max] : sizes) {
    if (value < 1 || value > max) return absl::StrCat("--", flag, " is ", value, ", must be in 1 .. ", max);
  }
  return "";
}

}  // namespace

std::optional<ModelShape> Preset(const std::string& name) {
  ModelShape shape;
  if (name == "tiny") return shape;
  if (name == "s15m") {  // The shape of the 15-million-parameter story models.
    shape.dim = 288;
    shape.layers = 6;
    shape.heads = shape.kv_heads = 6;
    shape.ffn = 768;
    shape.vocab = 32000;
    shape.tied = true;
    return shape;
  }
  if (name == "m500") {  // Half a billion parameters: big enough that memory bandwidth decides.
    shape.dim = 1536;
    shape.layers = 16;
    shape.heads = 24;
    shape.kv_heads = 6;
    shape.ffn = 4096;
    shape.vocab = 32000;
    return shape;
  }
  if (name == "llama8b") {  // Llama 3.1 8B.
    shape.dim = 4096;
    shape.layers = 32;
    shape.heads = 32;
    shape.kv_heads = 8;
    shape.ffn = 14336;
    shape.vocab = 128256;
    shape.context = 131072;
    return shape;
  }
  if (name == "qwen30b_a3b") {  // Qwen3-30B-A3B.
    shape.family = "qwen3_moe";
    shape.dim = 2048;
    shape.layers = 48;
    shape.heads = 32;
    shape.kv_heads = 4;
    shape.head_dim = 128;
    shape.ffn = 6144;
    shape.vocab = 151936;
    shape.context = 40960;
    shape.experts = 128;
    shape.experts_per_token = 8;
    shape.expert_ffn = 768;
    return shape;
  }
  return std::nullopt;
}

std::string Complete(ModelShape* shape) {
  if (Architecture(shape->family).empty()) {
    return absl::StrCat("--family is ", shape->family, ", must be llama, mistral, qwen2, qwen3 or qwen3_moe");
  }
  const struct {
    const char* flag;
    int value;
  } dimensions[] = {{"dim", shape->dim},           {"layers", shape->layers}, {"heads", shape->heads},
                    {"kv_heads", shape->kv_heads}, {"ffn", shape->ffn},       {"vocab", shape->vocab},
                    {"context", shape->context}};
  for (const auto& [flag, value] : dimensions) {
    if (value < 1 || value > kMaxDimension) {
      return absl::StrCat("--", flag, " is ", value, ", must be in 1 .. ", kMaxDimension);
    }
  }
  if (shape->heads % shape->kv_heads != 0) {
    return absl::StrCat("--kv_heads is ", shape->kv_heads, ", must divide --heads, ", shape->heads);
  }
  if (shape->head_dim == 0 && shape->dim % shape->heads == 0) shape->head_dim = shape->dim / shape->heads;
  if (shape->head_dim < 2 || shape->head_dim % 2 != 0 || shape->head_dim > kMaxDimension) {
    return absl::StrCat("--head_dim is ", shape->head_dim,
                        ", must be even and positive, or --dim a multiple of --heads");
  }
  if (shape->window < 0 || (shape->window > 0 && shape->family != "mistral")) {
    return absl::StrCat("--window is ", shape->window, ", must be 0, or positive with --family=mistral");
  }
  return CompleteExperts(shape);
}

int64_t TensorSpec::size() const {
  int64_t size = 1;
  for (const int64_t dimension : shape) size *= dimension;
  return size;
}

std::vector<TensorSpec> TensorsOf(const ModelShape& shape) {
  SpecList specs;
  constexpr double kLogitGain = 3.0;  // Standard deviation of the logits.
  // Rows of the embedding have unit variance, unless they are the output matrix as well.
  const double embedding_gain = shape.tied ? kLogitGain : std::sqrt(static_cast<double>(shape.dim));
  specs.Matrix("model.embed_tokens.weight", shape.vocab, shape.dim, embedding_gain);
  for (int i = 0; i < shape.layers; ++i) AddLayer(shape, absl::StrCat(kLayersPrefix, i, "."), &specs);
  specs.Norm("model.norm.weight", shape.dim);
  if (!shape.tied) specs.Matrix("lm_head.weight", shape.vocab, shape.dim, kLogitGain);
  return specs.Take();
}

std::string ConfigJson(const ModelShape& shape, const std::string& dtype) {
  nlohmann::ordered_json config = {
      {"architectures", {Architecture(shape.family)}},
      {"model_type", shape.family},
      {"hidden_size", shape.dim},
      {"intermediate_size", shape.ffn},
      {"num_hidden_layers", shape.layers},
      {"num_attention_heads", shape.heads},
      {"num_key_value_heads", shape.kv_heads},
      {"head_dim", shape.head_dim},
      {"vocab_size", shape.vocab},
      {"max_position_embeddings", shape.context},
      {"hidden_act", "silu"},
      {"rms_norm_eps", 1e-5},
      {"rope_theta", 10000.0},
      {"tie_word_embeddings", shape.tied},
      {"torch_dtype", dtype},
  };
  if (shape.family == "mistral") {
    config["sliding_window"] = shape.window > 0 ? nlohmann::ordered_json(shape.window) : nlohmann::ordered_json();
  }
  if (HasExperts(shape)) {
    config["num_experts"] = shape.experts;
    config["num_experts_per_tok"] = shape.experts_per_token;
    config["moe_intermediate_size"] = shape.expert_ffn;
    config["norm_topk_prob"] = true;
  }
  if (HasTokenizer(shape.vocab)) {
    config["bos_token_id"] = kBosToken;
    config["eos_token_id"] = kEosToken;
  }
  return config.dump(1) + "\n";
}

}  // namespace quire::make_model
