// SPDX-License-Identifier: Apache-2.0

#include "tests/worker/model/fp8_model.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/fp8.h"
#include "kernels/half_float.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/stored_tensors.h"
#include "tools/make_model/safetensors_writer.h"
#include "worker/model/safetensors.h"

namespace quire {

void WriteFp8Model(const make_model::ModelShape& shape, int block, const TestDirectory& directory) {
  constexpr float kScale = 0x1p-8f;
  const std::string path = directory.path() + "/model.safetensors";
  const absl::Status status =
      make_model::WriteRandomTensors(make_model::TensorsOf(shape), DataType::kBFloat16, 1, path);
  ASSERT_TRUE(status.ok()) << status;
  const std::string file = ReadWholeFile(path);
  const auto tensors = ParseSafetensors(file, "model.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  Tensors stored;
  for (const Tensor& tensor : *tensors) {
    stored[tensor.name] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
    if (!absl::StrContains(tensor.name, "_proj.weight")) continue;
    std::string numbers(tensor.bytes.size() / sizeof(BFloat16), '\0');
    for (size_t i = 0; i < numbers.size(); ++i) {
      BFloat16 weight;
      memcpy(&weight, tensor.bytes.data() + i * sizeof(weight), sizeof(weight));
      numbers[i] = static_cast<char>(FloatToFp8(ToFloat(weight) / kScale));
    }
    stored[tensor.name] = {"F8_E4M3", tensor.shape, numbers};
    if (block == 0) {
      stored[tensor.name + "_scale"] = {"F32", {1}, BytesOf(std::vector<float>{kScale})};
    } else {
      const int64_t rows = (tensor.shape[0] + block - 1) / block, cols = (tensor.shape[1] + block - 1) / block;
      const std::vector<float> scales(static_cast<size_t>(rows * cols), kScale);
      stored[tensor.name + "_scale_inv"] = {"F32", {rows, cols}, BytesOf(scales)};
    }
  }
  nlohmann::json config = nlohmann::json::parse(make_model::ConfigJson(shape, "bfloat16"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  if (block != 0) config["quantization_config"]["weight_block_size"] = {block, block};
  directory.Write("model.safetensors", SafetensorsFileOf(stored));
  directory.Write("config.json", config.dump());
}

}  // namespace quire
