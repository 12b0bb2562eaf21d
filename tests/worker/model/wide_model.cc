// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/model/wide_model.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "kernels/ceil_div.h"
#include "kernels/half_float.h"
#include "kernels/linear.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/stored_tensors.h"
#include "worker/model/safetensors.h"

namespace quire {
namespace {

struct WideShape {
  int64_t q_rows;
  int64_t kv_rows;
  int64_t width;  // Of dense MLPs.
  int64_t hidden;
};

// Returns the shape of a tensor in the wide model, or its shape in the small one if it stays.
std::vector<int64_t> WideShapeOf(const Tensor& tensor, const WideShape& wide, int64_t head_dim) {
  const std::string& name = tensor.name;
  const auto rows = [&](int64_t count) {
    return tensor.shape.size() == 1 ? std::vector<int64_t>{count} : std::vector<int64_t>{count, wide.hidden};
  };
  const bool is_weight = absl::EndsWith(name, ".weight");
  if (absl::StrContains(name, ".self_attn.")) {
    if (absl::StrContains(name, ".q_proj.")) return rows(wide.q_rows);
    if (absl::StrContains(name, ".k_proj.") || absl::StrContains(name, ".v_proj.")) return rows(wide.kv_rows);
    if (absl::StrContains(name, ".qkv_proj.")) return rows(wide.q_rows + 2 * wide.kv_rows);
    if (absl::StrContains(name, ".o_proj.") && is_weight) return {wide.hidden, wide.q_rows};
    if (absl::EndsWith(name, ".sinks")) return {wide.q_rows / head_dim};
    const bool is_whole_norm = absl::StrContains(name, "_norm.") && tensor.shape[0] != head_dim;
    if (is_whole_norm) return {absl::StrContains(name, ".q_norm.") ? wide.q_rows : wide.kv_rows};
  }
  for (const char* matrix : {".mlp.gate_proj.", ".mlp.up_proj."}) {
    if (absl::StrContains(name, matrix)) return rows(wide.width);
  }
  if (absl::StrContains(name, ".mlp.gate_up_proj.")) return rows(2 * wide.width);
  if (absl::StrContains(name, ".mlp.down_proj.") && is_weight) return {wide.hidden, wide.width};
  return tensor.shape;
}

// Returns numbers of bfloat16 whose products have about the magnitude of their input.
std::string RandomNumbers(const std::vector<int64_t>& shape, std::mt19937* random) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  const double width = shape.size() == 1 ? 1 : std::sqrt(3.0 / static_cast<double>(shape[1]));
  std::vector<BFloat16> numbers(count);
  for (BFloat16& number : numbers) {
    number = ToBFloat16(static_cast<float>(width * (static_cast<double>((*random)()) / 0x1p31 - 1)));
  }
  return BytesOf(numbers);
}

std::string ToBFloat16Bytes(const Tensor& tensor) {
  std::vector<BFloat16> numbers(tensor.bytes.size() / sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) {
    float number;
    std::memcpy(&number, tensor.bytes.data() + i * sizeof(number), sizeof(number));
    numbers[i] = ToBFloat16(number);
  }
  return BytesOf(numbers);
}

}  // namespace

void WriteWideModel(const std::string& name, int num_columns, const TestDirectory& directory) {
  const std::string file = ReadWholeFile(GoldenModel(name) + "/model.safetensors");
  const auto tensors = ParseSafetensors(file, "model.safetensors");
  QUIRE_CHECK(tensors.ok()) << tensors.status();
  nlohmann::json config = nlohmann::json::parse(ReadWholeFile(GoldenModel(name) + "/config.json"));
  nlohmann::json& text = config.contains("text_config") ? config["text_config"] : config;
  const int hidden = text["hidden_size"], heads = text["num_attention_heads"];
  const bool has_head_dim = text.contains("head_dim") && !text["head_dim"].is_null();
  const int head_dim = has_head_dim ? text["head_dim"].get<int>() : hidden / heads;
  bool has_whole_norms = false, has_dense_mlp = false;
  for (const Tensor& tensor : *tensors) {
    has_whole_norms |= absl::EndsWith(tensor.name, ".q_norm.weight") && tensor.shape[0] != head_dim;
    has_dense_mlp |= absl::EndsWith(tensor.name, ".mlp.down_proj.weight");
  }
  const int kv_heads = has_whole_norms ? 4 : 2;  // Ranks that norm all heads together need a KV head each.
  // Four slices of whole heads and whole steps.
  const int q_rows = 4 * CeilDiv(num_columns / 4, std::lcm(kSliceStep, head_dim)) * std::lcm(kSliceStep, head_dim);
  text["num_attention_heads"] = q_rows / head_dim;
  text["num_key_value_heads"] = kv_heads;
  text["head_dim"] = head_dim;
  if (has_dense_mlp) text["intermediate_size"] = num_columns;
  for (nlohmann::json* part : {&config, &text}) {
    for (const char* field : {"dtype", "torch_dtype"}) {
      if (part->contains(field)) (*part)[field] = "bfloat16";
    }
  }
  const WideShape wide = {q_rows, int64_t{kv_heads} * head_dim, num_columns, hidden};
  std::mt19937 random(1);
  Tensors stored;
  for (const Tensor& tensor : *tensors) {
    const std::vector<int64_t> shape = WideShapeOf(tensor, wide, head_dim);
    const bool is_float = tensor.dtype == "F32" && tensor.shape.size() > 0;
    if (shape != tensor.shape) {
      stored[tensor.name] = {"BF16", shape, RandomNumbers(shape, &random)};
    } else if (is_float) {
      stored[tensor.name] = {"BF16", shape, ToBFloat16Bytes(tensor)};
    } else {
      stored[tensor.name] = {tensor.dtype, shape, std::string(tensor.bytes)};
    }
  }
  directory.Write("model.safetensors", SafetensorsFileOf(stored));
  directory.Write("config.json", config.dump());
}

}  // namespace quire
