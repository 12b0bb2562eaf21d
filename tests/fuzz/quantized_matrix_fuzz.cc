// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kernels/fp8.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/checkpoint.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

constexpr int kRows = 32;

// Two matrices of tests/golden/quantized, whose files are the seeds.
struct Shape {
  const char* name;
  int cols;
};
constexpr Shape kMatrices[] = {{"model.layers.0.self_attn.k_proj.weight", 32},
                               {"model.layers.0.mlp.down_proj.weight", 64}};

void CheckMatrix(const QuantizedMatrix& matrix, int cols) {
  QUIRE_CHECK(matrix.values.size() == static_cast<size_t>(kRows) * cols);
  const int groups = matrix.group == 0 ? 1 : matrix.num_groups();
  QUIRE_CHECK(matrix.scales.size() == static_cast<size_t>(kRows) * groups) << matrix.scales.size();
  if (matrix.group == 0) return;
  const bool kernels_know_group = matrix.group == 32 || matrix.group == 64 || matrix.group == 128;
  QUIRE_CHECK(kernels_know_group) << matrix.group;
  QUIRE_CHECK(matrix.zeros.size() == matrix.scales.size());
  for (const uint8_t zero : matrix.zeros) QUIRE_CHECK(zero <= 15) << static_cast<int>(zero);
  for (const int8_t value : matrix.values) QUIRE_CHECK(value >= 0 && value <= 15) << static_cast<int>(value);
  std::vector<int32_t> order = matrix.order;
  std::sort(order.begin(), order.end());
  for (size_t k = 0; k < order.size(); ++k) QUIRE_CHECK(order[k] == static_cast<int32_t>(k)) << k;
}

LoadProgress* Progress() {
  static auto* const progress = [] {
    auto* const begun = new LoadProgress();
    begun->Begin("the input", /*num_files=*/1, /*total_bytes=*/int64_t{1} << 50);
    return begun;
  }();
  return progress;
}

// Reads a matrix as floating-point numbers, and checks that they are finite.
void Take(TensorReader* tensors, const Shape& matrix) {
  const auto tensor = tensors->Take(matrix.name, {kRows, matrix.cols});
  if (!tensor.ok()) {
    QUIRE_CHECK(!tensor.status().message().empty());
    return;
  }
  std::vector<float> values;
  AppendAsFloat((*tensor)->bytes, *WeightType(**tensor), &values);
  QUIRE_CHECK(values.size() == static_cast<size_t>(kRows) * matrix.cols) << values.size();
  for (const float value : values) QUIRE_CHECK(std::isfinite(value)) << value;
}

void ReadAs(const CheckpointQuantization& quantization, const Checkpoint& checkpoint) {
  TensorReader tensors(checkpoint, Progress());
  QuantizedReader reader(quantization, &tensors);
  for (const Shape& shape : kMatrices) {
    if (!reader.Stores(shape.name)) {
      if (reader.Dequantize(shape.name, kRows, shape.cols).ok()) Take(&tensors, shape);
      tensors.Release(shape.name);
      continue;
    }
    const auto matrix = reader.Read(shape.name, kRows, shape.cols);
    if (matrix.ok()) {
      CheckMatrix(*matrix, shape.cols);
    } else {
      QUIRE_CHECK(!matrix.status().message().empty());
    }
  }
}

void KeepAsFp8(const Checkpoint& checkpoint, Fp8Block block, const Shape& shape) {
  TensorReader tensors(checkpoint, Progress(), block);
  const auto matrix = tensors.TakeFp8(shape.name, {kRows, shape.cols});
  if (!matrix.ok()) {
    QUIRE_CHECK(!matrix.status().message().empty());
    return;
  }
  QUIRE_CHECK(matrix->values.size() == static_cast<size_t>(kRows) * shape.cols) << matrix->values.size();
  QUIRE_CHECK(matrix->scales.size() == static_cast<size_t>(kRows) * matrix->num_groups()) << matrix->scales.size();
  for (const float scale : matrix->scales) QUIRE_CHECK(std::isfinite(scale)) << scale;
  for (const int8_t value : matrix->values) QUIRE_CHECK(!std::isnan(Fp8ToFloat(static_cast<uint8_t>(value)))) << value;
}

void ReadInEveryFormat(const Checkpoint& checkpoint) {
  for (const Fp8Block block : {Fp8Block{}, Fp8Block{24, 20}, Fp8Block{16, 32}}) {
    TensorReader tensors(checkpoint, Progress(), block);
    for (const Shape& shape : kMatrices) {
      Take(&tensors, shape);
      if (CanKeepFp8(block)) KeepAsFp8(checkpoint, block, shape);
    }
  }
  ReadAs({.format = CheckpointFormat::kInt8}, checkpoint);
  for (const int group : {0, 32, 64}) {
    ReadAs({.format = CheckpointFormat::kAwq, .group = group, .is_symmetric = false}, checkpoint);
    for (const auto format : {CheckpointFormat::kPackQuantized, CheckpointFormat::kGptq}) {
      for (const int bits : {4, 8}) {
        for (const bool is_symmetric : {false, true}) {
          ReadAs({.format = format, .bits = bits, .group = group, .is_symmetric = is_symmetric, .zeros_stored_less = 1},
                 checkpoint);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire

// Input: a .safetensors file. Every format reads two matrices from it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const directory = new quire::TestDirectory();
  directory->Write("model.safetensors", std::string_view(reinterpret_cast<const char*>(data), size));
  const auto checkpoint = quire::Checkpoint::Open(directory->path());
  if (checkpoint.ok()) quire::ReadInEveryFormat(*checkpoint);
  return 0;
}
