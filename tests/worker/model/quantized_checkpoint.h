// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_QUANTIZED_CHECKPOINT_H_
#define QUIRE_TESTS_WORKER_MODEL_QUANTIZED_CHECKPOINT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "kernels/cpu/backend.h"
#include "nlohmann/json.hpp"
#include "tests/test_paths.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/model/paged_runner.h"
#include "tests/worker/model/stored_tensors.h"
#include "worker/model/model.h"
#include "worker/model/safetensors.h"

namespace quire {

// A test that changes the tensors and the config of a small model and loads the result. Without a name, it is the Llama
// model.
class CheckpointTest : public testing::Test {
 protected:
  explicit CheckpointTest(const std::string& model = "llama2") : backend_(MakeCpuBackend(1)) {
    const std::string file = ReadWholeFile(GoldenModel(model) + "/model.safetensors");
    const auto tensors = ParseSafetensors(file, "model.safetensors");
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    for (const Tensor& tensor : *tensors) {
      tensors_[tensor.name] = {tensor.dtype, tensor.shape, std::string(tensor.bytes)};
      if (absl::StrContains(tensor.name, "_proj.weight")) matrices_.push_back(tensor.name);
    }
    config_ = nlohmann::json::parse(ReadWholeFile(GoldenModel(model) + "/config.json"));
  }

  MatrixView View(const std::string& name) const {
    const StoredTensor& tensor = tensors_.at(name);
    return {tensor.bytes.data(), static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1]),
            DataType::kFloat32};
  }

  std::string File() const { return SafetensorsFileOf(tensors_); }

  absl::StatusOr<std::unique_ptr<Model>> Load(Quantization quantize = Quantization::kNone) const {
    directory_.Write("model.safetensors", File());
    directory_.Write("config.json", config_.dump());
    return LoadModel(directory_.path(), backend_.get(), /*progress=*/nullptr, {.layers = quantize});
  }
  std::string ErrorOfLoad(Quantization quantize = Quantization::kNone) const {
    const auto model = Load(quantize);
    EXPECT_FALSE(model.ok());
    return std::string(model.status().message());
  }

  std::vector<Logits> LogitsOf(const Model& model) const { return LogitsOf(model, backend_.get()); }
  // The same of a model that was loaded on another backend.
  static std::vector<Logits> LogitsOf(const Model& model, Backend* backend, Collective* group = nullptr) {
    return PagedRunner(&model, backend, {}, group).Prefill(0, {1, 5, 17, 3, 90, 33, 2, 4, 4, 61}, 4);
  }
  std::vector<Logits> RoundedAtLoad(Quantization quantize) const {
    const auto model = LoadModel(GoldenModel("llama2"), backend_.get(), /*progress=*/nullptr, {.layers = quantize});
    EXPECT_TRUE(model.ok()) << model.status();
    return LogitsOf(**model);
  }

  const std::unique_ptr<Backend> backend_;
  const TestDirectory directory_;
  Tensors tensors_;
  nlohmann::json config_;
  std::vector<std::string> matrices_;  // Names of the matrices of the layers.
};

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_QUANTIZED_CHECKPOINT_H_
