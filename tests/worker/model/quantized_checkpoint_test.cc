// SPDX-License-Identifier: Apache-2.0

// Checkpoints in the layout of compressed-tensors, made here from the small Llama model.

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "tests/worker/model/test_backends.h"
#include "worker/model/model.h"
#include "worker/model/tensor.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr char kQuery[] = "model.layers.1.self_attn.q_proj.weight";
constexpr char kOutput[] = "model.layers.0.self_attn.o_proj.weight";

json QuantizationConfig() {
  return json::parse(R"({
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "version": "0.20.0", "global_compression_ratio": null, "kv_cache_scheme": null, "ignore": ["lm_head"],
    "sparsity_config": {}, "transform_config": {},
    "config_groups": {"group_0": {
      "targets": ["Linear"], "format": "int-quantized", "output_activations": null,
      "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel", "group_size": null,
                  "block_structure": null, "dynamic": false, "actorder": null, "observer": "minmax"},
      "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "group_size": null,
                            "block_structure": null, "dynamic": true, "actorder": null, "observer": null}}}})");
}

class QuantizedCheckpointTest : public CheckpointTest {
 protected:
  QuantizedCheckpointTest() {
    for (const std::string& name : matrices_) Quantize(name);
    config_["quantization_config"] = QuantizationConfig();
  }

  void Quantize(const std::string& name) {
    const QuantizedMatrix matrix = QuantizeToInt8(View(name));
    tensors_[name + "_scale"] = {"F32", {matrix.rows, 1}, BytesOf(matrix.scales)};
    tensors_[name] = {"I8", {matrix.rows, matrix.cols}, BytesOf(matrix.values)};
  }

  // Stores the numbers times their scales instead.
  void Dequantize(const std::string& name) {
    StoredTensor& tensor = tensors_.at(name);
    std::vector<float> scales, weights;
    AppendAsFloat(tensors_.at(name + "_scale").bytes, DataType::kFloat32, &scales);
    for (size_t i = 0; i < tensor.bytes.size(); ++i) {
      weights.push_back(static_cast<float>(static_cast<int8_t>(tensor.bytes[i])) * scales[i / tensor.shape[1]]);
    }
    tensor = {"F32", tensor.shape, BytesOf(weights)};
    tensors_.erase(name + "_scale");
  }
};

TEST_F(QuantizedCheckpointTest, StoredNumbersGiveTheBitsOfTheSameNumbersRoundedAtLoad) {
  const auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->weights.rounding.layers, Quantization::kInt8);
  EXPECT_EQ(LogitsOf(**model), RoundedAtLoad(Quantization::kInt8));
}

// Products keep their inputs in float32, so the only difference to a file of the same numbers in float32 is the order
// of sums. If the matrix were rounded as well, the logits would be more than 1e-4 away.
TEST_F(QuantizedCheckpointTest, AnIgnoredLayerKeepsItsPrecision) {
  const std::string file = ReadWholeFile(GoldenModel("llama2") + "/model.safetensors");
  const auto original = ParseSafetensors(file, "");
  ASSERT_TRUE(original.ok());
  ExactInputsBackend backend;
  const auto load = [&] {
    directory_.Write("model.safetensors", File());
    directory_.Write("config.json", config_.dump());
    return LoadModel(directory_.path(), &backend);
  };
  const auto all = load();
  ASSERT_TRUE(all.ok()) << all.status();
  for (const Tensor& tensor : *original) {
    if (tensor.name == kOutput) tensors_[kOutput] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
  }
  tensors_.erase(std::string(kOutput) + "_scale");
  const auto model = load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->config.quantization.plain_stacks.attention_output, 1);
  for (const std::string& name : matrices_) {
    if (name != kOutput) Dequantize(name);
  }
  config_.erase("quantization_config");
  const auto plain = load();
  ASSERT_TRUE(plain.ok()) << plain.status();
  const std::vector<Logits> logits = LogitsOf(**model, &backend), expected = LogitsOf(**plain, &backend);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_LT(RelativeError(logits[i], expected[i]), 1e-5f) << i;
  EXPECT_GT(RelativeError(LogitsOf(**all, &backend).back(), expected.back()), 1e-4f);
}

TEST_F(QuantizedCheckpointTest, OneScaleForAMatrixIsTheScaleOfEveryRow) {
  StoredTensor& scales = tensors_[std::string(kOutput) + "_scale"];
  const std::vector<float> same(scales.shape[0], 0.25f);
  scales.bytes = BytesOf(same);
  const auto per_row = Load();
  ASSERT_TRUE(per_row.ok()) << per_row.status();
  const std::vector<Logits> expected = LogitsOf(**per_row);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{1}, {}}) {
    scales = {"F32", shape, BytesOf(std::vector<float>{0.25f})};
    const auto model = Load();
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(LogitsOf(**model), expected);
  }
}

TEST_F(QuantizedCheckpointTest, AWrongTensorIsNamed) {
  const std::string scale_name = std::string(kQuery) + "_scale";
  const struct {
    std::function<void(Tensors*)> change;
    std::string message;
  } cases[] = {
      {[&](Tensors* t) { t->erase(scale_name); },
       "tensor " + scale_name + " is missing, expected [32, 1] or [1] of F32, BF16 or F16"},
      {[&](Tensors* t) {
         (*t)[scale_name].shape = {1, 32};
       },
       "tensor " + scale_name + " is F32 [1, 32], expected [32, 1] or [1] of F32, BF16 or F16"},
      {[&](Tensors* t) { memset((*t)[scale_name].bytes.data() + 8, 0xff, 4); },
       "element 2 is infinite or not a number"},
      {[&](Tensors* t) {
         (*t)[kQuery].shape = {16, 64};
       },
       "tensor model.layers.1.self_attn.q_proj.weight is I8 [16, 64], expected [32, 32] of I8"},
      {[&](Tensors* t) {
         (*t)["model.norm.weight"] = {"I8", {32}, std::string(32, '\1')};
       },
       "tensor model.norm.weight is I8 [32], expected [32] of F32, BF16 or F16"},
      {[&](Tensors* t) {
         (*t)[kQuery] = {"F32", {32, 32}, std::string(4096, '\0')};
       },
       "of the tensors model.layers.1.self_attn.q_proj.weight and model.layers.1.self_attn.k_proj.weight only one is "
       "quantized"},
  };
  const Tensors good = tensors_;
  for (const auto& test : cases) {
    tensors_ = good;
    test.change(&tensors_);
    EXPECT_THAT(ErrorOfLoad(), HasSubstr(test.message));
  }
}

TEST_F(QuantizedCheckpointTest, ZeroPointsMustBe0) {
  const auto without = Load();
  ASSERT_TRUE(without.ok()) << without.status();
  StoredTensor& zeros = tensors_[std::string(kQuery) + "_zero_point"];
  zeros = {"I8", {32, 1}, std::string(32, '\0')};
  const auto with = Load();
  ASSERT_TRUE(with.ok()) << with.status();
  EXPECT_EQ(LogitsOf(**with), LogitsOf(**without));
  zeros.bytes[31] = 1;
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor " + std::string(kQuery) +
                                       "_zero_point is I8 [32, 1] with other zero points than 0, but "
                                       "weights.symmetric in quantization_config of config.json is true; "
                                       "with format int-quantized, only symmetric weights are supported"));
}

// A tensor beside a matrix whose name says that it changes the numbers is used, or has no effect, or is refused.
TEST_F(QuantizedCheckpointTest, NoTensorThatChangesAMatrixIsIgnored) {
  const std::string base = "model.layers.1.self_attn.q_proj.";
  const StoredTensor two = {"F32", {1}, BytesOf(std::vector<float>{2.0f})};
  const StoredTensor one = {"F32", {1}, BytesOf(std::vector<float>{1.0f})};
  const StoredTensor index = {"I32", {32}, BytesOf(std::vector<int32_t>(32, 0))};
  const Tensors good = tensors_;
  for (const char* name :
       {"weight_global_scale", "weight_scale_2", "weight_scale_inv", "input_scale", "pre_quant_scale", "scales"}) {
    tensors_ = good;
    tensors_[base + name] = two;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr("tensor " + base + name +
                                         " is F32 [1], and with quantization_config of config.json nothing "
                                         "uses it; beside a matrix of this kind it must be absent or all 1"));
    tensors_[base + name] = one;
    EXPECT_TRUE(Load().ok()) << name;
  }
  for (const char* name : {"qzeros", "input_zero_point"}) {
    tensors_ = good;
    tensors_[base + name] = two;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr("nothing uses it; beside a matrix of this kind it must be absent or all 0"));
    tensors_[base + name].bytes.assign(4, '\0');
    EXPECT_TRUE(Load().ok()) << name;
  }
  for (const char* name : {"g_idx", "weight_g_idx"}) {
    tensors_ = good;
    tensors_[base + name] = index;
    EXPECT_THAT(ErrorOfLoad(), HasSubstr("nothing uses it; beside a matrix of this kind it must be absent"));
  }
  // Scales of K and V, of no matrix, and of a matrix that the model does not have change nothing that is served.
  for (const char* name : {"model.layers.1.self_attn.k_proj.k_scale", "model.layers.1.self_attn.v_proj.output_scale",
                           "model.layers.1.self_attn.q_scale", "model.layers.9.self_attn.q_proj.weight_scale"}) {
    tensors_ = good;
    tensors_[name] = two;
    EXPECT_TRUE(Load().ok()) << name;
  }
}

TEST_F(QuantizedCheckpointTest, ScalesOfAPlainMatrixAreNotIgnored) {
  const std::string file = ReadWholeFile(GoldenModel("llama2") + "/model.safetensors");
  const auto original = ParseSafetensors(file, "");
  ASSERT_TRUE(original.ok());
  for (const Tensor& tensor : *original) {
    if (tensor.name == kOutput) tensors_[kOutput] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
  }
  EXPECT_THAT(ErrorOfLoad(), HasSubstr(std::string(kOutput) + "_scale is F32 [32, 1], and with quantization_config"));
}

TEST_F(QuantizedCheckpointTest, ItIsNotQuantizedTwice) {
  EXPECT_THAT(ErrorOfLoad(Quantization::kInt8),
              HasSubstr("the checkpoint is quantized already, so --quantize must be none, not int8"));
}

TEST_F(QuantizedCheckpointTest, WithoutTheFieldInTheConfigNumbersOf8BitsAreRefused) {
  config_.erase("quantization_config");
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("model.layers.0.self_attn.q_proj.weight is I8 [32, 32], expected [32, 32] of "
                                       "F32, BF16 or F16"));
}

// Only without a format, or with naive-quantized, numbers of 8 bits may be FP8.
TEST_F(QuantizedCheckpointTest, AFormatOfWholeNumbersIsNotReadAsFp8) {
  json& group = config_["quantization_config"]["config_groups"]["group_0"];
  group.erase("format");
  group["weights"]["type"] = "float";
  EXPECT_THAT(ErrorOfLoad(), HasSubstr("group_0.weights.type is \"float\", must be \"int\""));
}

TEST_F(QuantizedCheckpointTest, EveryOtherKindIsRefusedByName) {
  const std::string group = "/config_groups/group_0";
  const struct {
    std::string pointer;  // Below quantization_config.
    json value;
    std::string message;
  } cases[] = {
      {"/quant_method", "bitsandbytes",
       "quant_method is \"bitsandbytes\", must be \"compressed-tensors\" with format "},
      {"/quant_method", "fbgemm_fp8", "quant_method is \"fbgemm_fp8\", must be"},
      {"/quant_method", 7, "quant_method is 7, must be a string"},
      {group + "/format", "pack-quantized", "group_0.input_activations is {"},
      {"/format", "mxfp8-quantized", "format is \"mxfp8-quantized\", must be \"int-quantized\""},
      {"/quantization_status", "frozen", "quantization_status is \"frozen\", must be \"compressed\""},
      {"/kv_cache_scheme", json{{"num_bits", 8}}, "kv_cache_scheme is {\"num_bits\":8}, must be absent"},
      {"/sparsity_config", json{{"format", "sparse-24-bitmask"}}, "sparsity_config is {"},
      {"/transform_config", json{{"config_groups", 1}}, "transform_config is {"},
      {"/config_groups", json::object(), "config_groups is {}, must be an object with a group"},
      {"/config_groups", nullptr, "config_groups is missing"},
      {group, 5, "config_groups.group_0 is 5, must be an object"},
      {group + "/format", "nvfp4-pack-quantized", "group_0.format is \"nvfp4-pack-quantized\""},
      {group + "/weights", nullptr, "group_0.weights is missing"},
      {group + "/weights/num_bits", 4, "group_0.weights.num_bits is 4, must be 8"},
      {group + "/weights/type", "float", "group_0.weights.type is \"float\", must be \"int\""},
      {group + "/weights/symmetric", false, "group_0.weights.symmetric is false, must be true"},
      {group + "/weights/strategy", "group",
       "group_0.weights.strategy is \"group\", must be \"channel\" or \"tensor\""},
      {group + "/input_activations", nullptr, "group_0.input_activations is missing, must be an object: 8 bits"},
      {group + "/input_activations/num_bits", 16, "group_0.input_activations.num_bits is 16"},
      {group + "/input_activations/strategy", "tensor", "group_0.input_activations.strategy is \"tensor\""},
      {group + "/input_activations/dynamic", false, "group_0.input_activations.dynamic is false, must be true"},
      {group + "/input_activations/dynamic", "local", "group_0.input_activations.dynamic is \"local\", must be true"},
      {group + "/output_activations", json{{"num_bits", 8}}, "group_0.output_activations is {"},
  };
  for (const auto& test : cases) {
    config_["quantization_config"] = QuantizationConfig();
    config_["quantization_config"][json::json_pointer(test.pointer)] = test.value;
    const std::string error = ErrorOfLoad();
    EXPECT_THAT(error, HasSubstr(test.message)) << test.pointer;
    EXPECT_THAT(error, HasSubstr("config.json: quantization_config")) << test.pointer;
  }
}

TEST_F(QuantizedCheckpointTest, AChangedByteIsLoadedOrRefusedButNeverCrashes) {
  SetLogLevel(LogLevel::kError);
  const std::string file = File(), config = config_.dump();
  const size_t header_bytes = file.size() - [&] {
    size_t data = 0;
    for (const auto& [name, tensor] : tensors_) data += tensor.bytes.size();
    return data;
  }();
  const size_t first = config.find("quantization_config");
  std::mt19937 random(1);
  int num_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad_file = file, bad_config = config;
    if (i % 2 == 0) {
      bad_file[random() % header_bytes] ^= static_cast<char>(1 + random() % 255);
    } else {
      bad_config[first + random() % (config.size() - first)] ^= static_cast<char>(1 + random() % 127);
    }
    directory_.Write("model.safetensors", bad_file);
    directory_.Write("config.json", bad_config);
    const auto model = LoadModel(directory_.path(), backend_.get());
    if (model.ok()) continue;
    ++num_refused;
    EXPECT_THAT(std::string(model.status().message()), Not(HasSubstr("\n")));
  }
  SetLogLevel(LogLevel::kInfo);
  EXPECT_GT(num_refused, 1000);
}

}  // namespace
}  // namespace quire
