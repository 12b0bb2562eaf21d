// SPDX-License-Identifier: Apache-2.0

// Checkpoints that other software has packed and read back: tests/golden/quantized.

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/quantized_checkpoint.h"
#include "tests/worker/model/test_backends.h"
#include "worker/model/checkpoint.h"
#include "worker/model/config.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using nlohmann::json;

const Tokens kPrompt = {1, 5, 17, 3, 90, 33, 2, 4, 4, 61};

std::string GoldenFile(const std::string& file) {
  return SourcePath("tests/golden/quantized/" + file);
}

class QuantizedGoldenTest : public CheckpointTest {
 protected:
  QuantizedGoldenTest() {
    tensors_.clear();
    config_ = json::parse(ReadWholeFile(GoldenFile("config.json")));
    Add("plain.safetensors");
  }

  // Adds the tensors of a file to the checkpoint, and what they shall become to `expected_`.
  void Add(const std::string& name) {
    const std::string file = ReadWholeFile(GoldenFile(name));
    const auto tensors = ParseSafetensors(file, name);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    for (const Tensor& tensor : *tensors) {
      Tensors& to = absl::StartsWith(tensor.name, "model.") ? tensors_ : expected_;
      to[tensor.name] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
    }
  }
  void AddFormat(const std::string& name) {
    Add(name + ".safetensors");
    config_["quantization_config"] = json::parse(ReadWholeFile(GoldenFile("formats.json"))).at(name);
  }

  static std::vector<float> Floats(const StoredTensor& stored) {
    const Tensor tensor{.name = "", .dtype = stored.dtype, .shape = stored.shape, .bytes = stored.bytes};
    std::vector<float> values;
    AppendAsFloat(stored.bytes, *WeightType(tensor), &values);
    return values;
  }
  std::vector<float> ExpectedFloats(const std::string& name) const { return Floats(expected_.at("expected." + name)); }
  std::vector<int> ExpectedNumbers(const std::string& name) const {
    const std::string& bytes = expected_.at("expected." + name).bytes;
    std::vector<int> numbers;
    for (const char byte : bytes) numbers.push_back(static_cast<uint8_t>(byte));
    return numbers;
  }

  // What the reader makes of `matrix` equals what the other software made of it.
  void ExpectTheSame(const QuantizedMatrix& matrix, const std::string& name) {
    std::vector<int> values(matrix.values.size());
    std::vector<float> weights(matrix.values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const int row = static_cast<int>(i) / matrix.cols, k = static_cast<int>(i) % matrix.cols;
      const int col = matrix.order.empty() ? k : matrix.order[k];
      const bool has_groups = matrix.group > 0;
      const int at = has_groups ? row * matrix.num_groups() + k / matrix.group : row;
      values[row * matrix.cols + col] = matrix.values[i];
      weights[row * matrix.cols + col] = (matrix.values[i] - (has_groups ? matrix.zeros[at] : 0)) * matrix.scales[at];
    }
    if (matrix.group == 0) {
      EXPECT_EQ(weights, ExpectedFloats(name + ".weight"));
      return;
    }
    EXPECT_EQ(values, ExpectedNumbers(name + ".values"));
    EXPECT_EQ(std::vector<int>(matrix.zeros.begin(), matrix.zeros.end()), ExpectedNumbers(name + ".zeros"));
    EXPECT_EQ(matrix.scales, ExpectedFloats(name + ".scales"));
  }

  void ExpectNumbersOfTheOtherSoftware() {
    directory_.Write("model.safetensors", File());
    const auto config = ParseModelConfig(config_.dump(), "");
    const auto checkpoint = Checkpoint::Open(directory_.path());
    ASSERT_TRUE(config.ok() && checkpoint.ok()) << config.status() << checkpoint.status();
    LoadProgress progress;
    progress.Begin("the model", /*num_files=*/1, /*total_bytes=*/1 << 20);
    TensorReader tensors(*checkpoint, &progress, config->quantization.fp8_block);
    QuantizedReader reader(config->quantization, &tensors);
    const struct {
      std::string name, tensor;
      int cols;
    } matrices[] = {{"k_proj", "model.layers.0.self_attn.k_proj.weight", 32},
                    {"down_proj", "model.layers.0.mlp.down_proj.weight", 64}};
    for (const auto& [name, tensor_name, cols] : matrices) {
      if (reader.Stores(tensor_name)) {
        const auto matrix = reader.Read(tensor_name, 32, cols);
        ASSERT_TRUE(matrix.ok()) << matrix.status();
        ExpectTheSame(*matrix, name);
        continue;
      }
      ASSERT_TRUE(reader.Dequantize(tensor_name, 32, cols).ok());
      const auto tensor = tensors.Take(tensor_name, {32, cols});
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      const StoredTensor& expected = expected_.at(absl::StrCat("expected.", name, ".weight"));
      EXPECT_EQ((*tensor)->dtype, expected.dtype);
      EXPECT_EQ(Floats({(*tensor)->dtype, (*tensor)->shape, std::string((*tensor)->bytes)}), Floats(expected));
    }
  }

  // Compares logits, which are [tokens, vocabulary] of the last tokens of the prompt, with the logits of the
  // dequantized weights in transformers. Both keep the inputs of products in float32.
  void ExpectLogits() {
    constexpr float kTolerance = 1e-3f;
    ExactInputsBackend backend;
    directory_.Write("model.safetensors", File());
    directory_.Write("config.json", config_.dump());
    const auto model =
        LoadModel(directory_.path(), &backend, /*progress=*/nullptr, {.int4_inputs = Int4Inputs::kFloat32});
    ASSERT_TRUE(model.ok()) << model.status();
    const std::vector<Logits> actual = LogitsOf(**model, &backend);
    const StoredTensor& stored = expected_.at("logits");
    const std::vector<float> expected = Floats(stored);
    const int64_t tokens = stored.shape[0], vocabulary = stored.shape[1];
    for (int64_t i = 0; i < tokens; ++i) {
      const Logits row(expected.begin() + i * vocabulary, expected.begin() + (i + 1) * vocabulary);
      EXPECT_LT(RelativeError(actual[actual.size() - tokens + i], row), kTolerance) << "token " << i;
    }
  }

  Tensors expected_;
};

// The names of formats.json.
constexpr const char* kFormats[] = {"int8_channel",
                                    "int8_tensor",
                                    "packed4_group",
                                    "packed4_group_asymmetric",
                                    "packed4_channel",
                                    "packed4_channel_asymmetric",
                                    "packed8_group",
                                    "packed8_channel_asymmetric",
                                    "fp8_channel",
                                    "fp8_tensor",
                                    "fp8_block",
                                    "fp8_block_inverse",
                                    "gptq4",
                                    "gptq4_row",
                                    "gptq4_desc_act",
                                    "gptq4_asymmetric_v1",
                                    "gptq4_asymmetric_v2",
                                    "gptq8",
                                    "gptq8_desc_act",
                                    "gptq8_asymmetric_v1",
                                    "gptq8_asymmetric_v2",
                                    "awq"};

class QuantizedFormatTest : public QuantizedGoldenTest, public testing::WithParamInterface<const char*> {};

TEST_P(QuantizedFormatTest, NumbersZeroPointsAndScalesAreThoseOfTheOtherSoftware) {
  AddFormat(GetParam());
  ExpectNumbersOfTheOtherSoftware();
}

TEST_P(QuantizedFormatTest, LogitsAreThoseOfTheDequantizedWeights) {
  AddFormat(GetParam());
  ExpectLogits();
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedFormatTest, testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(QuantizedGoldenTest, EveryFormatIsTested) {
  const json formats = json::parse(ReadWholeFile(GoldenFile("formats.json")));
  std::vector<std::string> names;
  for (const auto& [name, config] : formats.items()) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(kFormats));
}

// naive-quantized stores the same tensors, and so does a file that names no format.
TEST_F(QuantizedGoldenTest, WithoutAFormatOfTheirOwnTheWeightsTell) {
  for (const char* name : {"int8_channel", "fp8_channel"}) {
    for (const json& format : {json("naive-quantized"), json(nullptr)}) {
      AddFormat(name);
      config_["quantization_config"]["format"] = format;
      ExpectNumbersOfTheOtherSoftware();
    }
  }
}

// The two versions of asymmetric GPTQ store the same model.
TEST_F(QuantizedGoldenTest, TheZeroPointsOfBothVersionsOfGptqAreTheSame) {
  for (const char* bits : {"gptq4", "gptq8"}) {
    AddFormat(absl::StrCat(bits, "_asymmetric_v1"));
    const Tensors first = expected_;
    const std::string words = tensors_.at("model.layers.0.self_attn.k_proj.qzeros").bytes;
    AddFormat(absl::StrCat(bits, "_asymmetric_v2"));
    EXPECT_NE(tensors_.at("model.layers.0.self_attn.k_proj.qzeros").bytes, words);
    EXPECT_EQ(expected_.at("logits").bytes, first.at("logits").bytes);
  }
}

}  // namespace
}  // namespace quire
