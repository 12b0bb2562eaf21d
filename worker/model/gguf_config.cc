// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/number_text.h"
#include "base/status.h"
#include "kernels/kv_layout.h"
#include "nlohmann/json.hpp"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_types.h"
#include "worker/model/json_reader.h"
#include "worker/model/rope_scaling.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBlocks = 1024;
constexpr int64_t kMaxHeadCount = 1024;
constexpr int64_t kMaxSize = 1 << 22;
constexpr int64_t kMaxContext = 1 << 24;
constexpr int64_t kControlToken = 3;  // The type of such tokens in tokenizer.ggml.token_type.
constexpr const char* kArchitecture = "general.architecture";

struct Architecture {
  std::string_view gguf;
  const char* hugging_face;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};

// Keys after the name of the architecture that are read, or that only describe the file.
constexpr std::string_view kKnownKeys[] = {
    "block_count",
    "context_length",
    "embedding_length",
    "feed_forward_length",
    "vocab_size",
    "tensor_data_layout",
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
};

// Control tokens with these texts end an answer, as in llama.cpp.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",      "<|eom_id|>",
                                          "<|im_end|>",      "<|end|>",
                                          "<|end_of_text|>", "<|endoftext|>",
                                          "<end_of_turn>",   "</s>",
                                          "<EOT>",           "_<EOT>",
                                          "[EOT]",           "[EOS]",
                                          "<eos>",           "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};

const Tensor* FindTensor(const GgufContents& contents, std::string_view name) {
  const auto found = std::find_if(contents.tensors.begin(), contents.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == contents.tensors.end() ? nullptr : &*found;
}

bool HasTensorEndingIn(const GgufContents& contents, std::initializer_list<std::string_view> ends) {
  return std::any_of(contents.tensors.begin(), contents.tensors.end(), [&](const Tensor& tensor) {
    return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
      return absl::EndsWith(tensor.name, absl::string_view(end.data(), end.size()));
    });
  });
}

// The name that config.json has for the type of a tensor after it was read.
const char* NameOfType(const Tensor& tensor) {
  switch (WeightType(tensor).value_or(kDequantizedType)) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kFloat16:
      return "float16";
    case DataType::kBFloat16:
      break;
  }
  return "bfloat16";
}

// Writes config.json field by field.
class ConfigWriter {
 public:
  ConfigWriter(const GgufContents& contents, GgufShape shape)
      : contents_(contents), fields_(contents), shape_(std::move(shape)) {}

  absl::StatusOr<std::string> Write();

 private:
  std::string Key(std::string_view name) const {
    return absl::StrCat(shape_.architecture, ".", absl::string_view(name.data(), name.size()));
  }
  absl::Status RefuseUnknownKeys() const;
  absl::Status WriteSizes();
  absl::Status WriteHeads();
  absl::Status WriteRope();
  absl::Status WriteYarn(json* scaling);
  absl::Status WriteRopeFactors(const Tensor& tensor);
  absl::Status WriteTokens();
  // Returns an error unless the key is missing or is this number.
  absl::Status Expect(std::string_view name, double number) const;

  const GgufContents& contents_;
  const GgufFields fields_;
  const GgufShape shape_;
  int64_t head_dim_ = 0;
  int64_t vocab_size_ = 0;
  double theta_ = 0;
  json config_;
};

absl::Status ConfigWriter::Expect(std::string_view name, double number) const {
  QUIRE_ASSIGN_OR_RETURN(const double value, fields_.Number(Key(name), -1e30, 1e30, number));
  return value == number ? absl::OkStatus() : fields_.Bad(Key(name), absl::StrCat(number));
}

absl::Status ConfigWriter::RefuseUnknownKeys() const {
  const std::string prefix = shape_.architecture + ".";
  for (const auto& [key, value] : contents_.metadata) {
    if (!absl::StartsWith(key, prefix)) continue;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), name) != std::end(kKnownKeys)) continue;
    if (!fields_.IsNeutral(key)) return fields_.Bad(key, "absent: it is not supported");
  }
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields_.String("general.type", "model"));
  if (type != "model") return fields_.Bad("general.type", "\"model\"");
  QUIRE_ASSIGN_OR_RETURN(const int64_t splits, fields_.Int("split.count", 0, kMaxContext, 1));
  if (splits > 1) {
    return fields_.Bad("split.count", "at most 1: join the parts of the model with llama-gguf-split --merge");
  }
  constexpr const char* kSuppressed = "tokenizer.ggml.suppress_tokens";
  if (fields_.Has(kSuppressed) && !fields_.IsNeutral(kSuppressed)) {
    return fields_.Bad(kSuppressed, "absent: it is not supported");
  }
  QUIRE_ASSIGN_OR_RETURN(const bool is_causal, fields_.Bool(Key("attention.causal"), true));
  return is_causal ? absl::OkStatus() : fields_.Bad(Key("attention.causal"), "true");
}

absl::Status ConfigWriter::WriteSizes() {
  const Tensor* embedding = FindTensor(contents_, "token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor token_embd.weight is ", embedding == nullptr ? "missing" : Describe(*embedding), ", must be a matrix"));
  }
  vocab_size_ = embedding->shape[0];
  config_["vocab_size"] = vocab_size_;
  // This decides the type of K and V.
  const Tensor* matrix = FindTensor(contents_, "blk.0.ffn_down.weight");
  config_["dtype"] = NameOfType(matrix == nullptr ? *embedding : *matrix);
  config_["tie_word_embeddings"] = FindTensor(contents_, "output.weight") == nullptr;
  config_["num_hidden_layers"] = shape_.num_layers;
  QUIRE_ASSIGN_OR_RETURN(config_["hidden_size"], fields_.Int(Key("embedding_length"), 1, kMaxSize));
  QUIRE_ASSIGN_OR_RETURN(config_["intermediate_size"], fields_.Int(Key("feed_forward_length"), 1, kMaxSize));
  QUIRE_ASSIGN_OR_RETURN(config_["max_position_embeddings"], fields_.Int(Key("context_length"), 1, kMaxContext));
  QUIRE_ASSIGN_OR_RETURN(config_["rms_norm_eps"], fields_.Number(Key("attention.layer_norm_rms_epsilon"), 1e-12, 1e-1));
  if (shape_.architecture == "llama") {
    config_["attention_bias"] =
        HasTensorEndingIn(contents_, {".attn_q.bias", ".attn_k.bias", ".attn_v.bias", ".attn_output.bias"});
    config_["mlp_bias"] = HasTensorEndingIn(contents_, {".ffn_gate.bias", ".ffn_up.bias", ".ffn_down.bias"});
  }
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteHeads() {
  config_["num_attention_heads"] = shape_.num_heads;
  config_["num_key_value_heads"] = shape_.num_kv_heads;
  const int64_t hidden_size = config_["hidden_size"].get<int64_t>();
  QUIRE_ASSIGN_OR_RETURN(head_dim_,
                         fields_.Int(Key("attention.key_length"), 2, kMaxHeadDim, hidden_size / shape_.num_heads));
  if (head_dim_ < 2 || head_dim_ > kMaxHeadDim) {
    return absl::InvalidArgumentError(absl::StrCat(Key("attention.key_length"), " is missing, and ",
                                                   Key("embedding_length"), " / ", Key("attention.head_count"), " is ",
                                                   head_dim_, ", it must be in 2 .. ", kMaxHeadDim));
  }
  config_["head_dim"] = head_dim_;
  QUIRE_RETURN_IF_ERROR(Expect("attention.value_length", static_cast<double>(head_dim_)));
  return Expect("rope.dimension_count", static_cast<double>(head_dim_));
}

absl::Status ConfigWriter::WriteYarn(json* scaling) {
  QUIRE_ASSIGN_OR_RETURN((*scaling)["original_max_position_embeddings"],
                         fields_.Int(Key("rope.scaling.original_context_length"), 1, kMaxContext,
                                     config_["max_position_embeddings"].get<int64_t>()));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["beta_fast"], fields_.Number(Key("rope.scaling.yarn_beta_fast"), 1e-3, 1e6, 32.0));
  QUIRE_ASSIGN_OR_RETURN((*scaling)["beta_slow"], fields_.Number(Key("rope.scaling.yarn_beta_slow"), 1e-3, 1e6, 1.0));
  for (const char* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"})
    QUIRE_RETURN_IF_ERROR(Expect(name, 1.0));
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteRope() {
  constexpr double kMaxFactor = 1024;
  QUIRE_ASSIGN_OR_RETURN(theta_, fields_.Number(Key("rope.freq_base"), 1.5, 1e12, 10000.0));
  config_["rope_theta"] = theta_;
  const std::string type_key = Key("rope.scaling.type");
  QUIRE_ASSIGN_OR_RETURN(const std::string type, fields_.String(type_key, "linear"));
  if (type != "none" && type != "linear" && type != "yarn") return fields_.Bad(type_key, "none, linear or yarn");
  const char* factor_name = fields_.Has(Key("rope.scaling.factor")) ? "rope.scaling.factor" : "rope.scale_linear";
  QUIRE_ASSIGN_OR_RETURN(double factor, fields_.Number(Key(factor_name), 0.0, kMaxFactor, 1.0));
  if (factor == 0) factor = 1;  // llama.cpp does the same.
  const bool is_scaled = type == "yarn" || (type == "linear" && factor != 1);
  if (is_scaled) {
    json scaling = {{"rope_type", type}, {"factor", factor}};
    if (type == "yarn") QUIRE_RETURN_IF_ERROR(WriteYarn(&scaling));
    config_["rope_scaling"] = std::move(scaling);
  }
  const Tensor* factors = FindTensor(contents_, kGgufRopeFactors);
  if (factors == nullptr || shape_.architecture != "llama") return absl::OkStatus();
  if (is_scaled) return fields_.Bad(type_key, absl::StrCat("none in a file with the tensor ", kGgufRopeFactors));
  return WriteRopeFactors(*factors);
}

absl::Status ConfigWriter::WriteRopeFactors(const Tensor& tensor) {
  const std::vector<int64_t> expected = {head_dim_ / 2};
  if (tensor.dtype != "F32" || tensor.shape != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", kGgufRopeFactors, " is ", Describe(tensor), ", expected F32 [", head_dim_ / 2, "]"));
  }
  std::vector<float> factors;
  AppendAsFloat(tensor.bytes, DataType::kFloat32, &factors);
  const float factor = *std::max_element(factors.begin(), factors.end());
  if (factor == 1.0f && *std::min_element(factors.begin(), factors.end()) == 1.0f) return absl::OkStatus();
  RopeConfig rope{.type = RopeType::kLlama3, .theta = theta_, .factor = factor};
  rope.original_max_position_embeddings = 8192;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  const std::vector<float> scaled = InverseFrequencies(rope, static_cast<int>(head_dim_));
  const std::vector<float> plain = InverseFrequencies({.theta = theta_}, static_cast<int>(head_dim_));
  for (size_t i = 0; i < factors.size(); ++i) {
    const float known = plain[i] / scaled[i];
    if (std::abs(factors[i] - known) <= 1e-5f * known) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", kGgufRopeFactors, " has ", NumberText(factors[i]), " as element ", i,
        ", only the scaling of Llama 3.1 is supported, which with factor ", factor, " has ", NumberText(known)));
  }
  config_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", factor},
                             {"low_freq_factor", rope.low_freq_factor},
                             {"high_freq_factor", rope.high_freq_factor},
                             {"original_max_position_embeddings", rope.original_max_position_embeddings}};
  return absl::OkStatus();
}

absl::Status ConfigWriter::WriteTokens() {
  // Null says that there is none. Without the field, the default of the architecture would hold.
  config_["bos_token_id"] = nullptr;
  const std::string bos_key = "tokenizer.ggml.bos_token_id";
  if (fields_.Has(bos_key)) {
    QUIRE_ASSIGN_OR_RETURN(config_["bos_token_id"], fields_.Int(bos_key, 0, vocab_size_ - 1));
  }
  std::set<int64_t> ends;
  for (const char* name : {"eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string key = absl::StrCat("tokenizer.ggml.", name, "_token_id");
    if (!fields_.Has(key)) continue;
    QUIRE_ASSIGN_OR_RETURN(const int64_t token, fields_.Int(key, 0, vocab_size_ - 1));
    ends.insert(token);
  }
  QUIRE_ASSIGN_OR_RETURN(const auto tokens, fields_.Strings("tokenizer.ggml.tokens"));
  QUIRE_ASSIGN_OR_RETURN(const auto types, fields_.Numbers("tokenizer.ggml.token_type"));
  const size_t count = std::min({tokens.size(), types.size(), static_cast<size_t>(vocab_size_)});
  for (size_t i = 0; i < count; ++i) {
    if (types[i] != kControlToken) continue;
    if (std::find(std::begin(kEndTexts), std::end(kEndTexts), tokens[i]) != std::end(kEndTexts)) {
      ends.insert(static_cast<int64_t>(i));
    }
  }
  config_["eos_token_id"] = ends.empty() ? json() : json(ends);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ConfigWriter::Write() {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.gguf == shape_.architecture) config_["architectures"] = {architecture.hugging_face};
  }
  QUIRE_RETURN_IF_ERROR(RefuseUnknownKeys());
  QUIRE_RETURN_IF_ERROR(WriteSizes());
  QUIRE_RETURN_IF_ERROR(WriteHeads());
  QUIRE_RETURN_IF_ERROR(WriteRope());
  QUIRE_RETURN_IF_ERROR(WriteTokens());
  return config_.dump();
}

}  // namespace

std::string GgufArchitecture(const std::string& hugging_face) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.hugging_face == hugging_face) return std::string(architecture.gguf);
  }
  return "";
}

absl::StatusOr<GgufShape> ReadGgufShape(const GgufContents& contents) {
  const GgufFields fields(contents);
  GgufShape shape;
  QUIRE_ASSIGN_OR_RETURN(shape.architecture, fields.String(kArchitecture));
  const bool is_known =
      std::any_of(std::begin(kArchitectures), std::end(kArchitectures),
                  [&](const Architecture& architecture) { return architecture.gguf == shape.architecture; });
  if (!is_known) return fields.Bad(kArchitecture, "llama, qwen2 or qwen3");
  const auto read = [&](const char* name, int64_t max, int* result, std::optional<int64_t> fallback = {}) {
    const auto value = fields.Int(absl::StrCat(shape.architecture, ".", name), 1, max, fallback);
    if (value.ok()) *result = static_cast<int>(*value);
    return value.status();
  };
  QUIRE_RETURN_IF_ERROR(read("block_count", kMaxBlocks, &shape.num_layers));
  QUIRE_RETURN_IF_ERROR(read("attention.head_count", kMaxHeadCount, &shape.num_heads));
  QUIRE_RETURN_IF_ERROR(read("attention.head_count_kv", kMaxHeadCount, &shape.num_kv_heads, shape.num_heads));
  return shape;
}

absl::StatusOr<std::string> GgufConfigJson(const GgufContents& contents) {
  QUIRE_ASSIGN_OR_RETURN(GgufShape shape, ReadGgufShape(contents));
  return ConfigWriter(contents, std::move(shape)).Write();
}

bool HasQ4LayerMatrices(const GgufContents& contents) {
  return std::any_of(contents.tensors.begin(), contents.tensors.end(), [](const Tensor& tensor) {
    return tensor.dtype == "Q4_0" && absl::StartsWith(tensor.name, "blk.");
  });
}

}  // namespace quire
