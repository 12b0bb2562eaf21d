#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/checkpoint.h"
#include "worker/model/load_progress.h"
#include "worker/model/quantized_reader.h"
#include "worker/model/tensor_reader.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

constexpr int kRows = 24, kCols = 256;

void CheckMatrix(const QuantizedMatrix& matrix) {
  QUIRE_CHECK(matrix.values.size() == static_cast<size_t>(kRows) * kCols);
  const int groups = matrix.group == 0 ? 1 : matrix.num_groups();
  QUIRE_CHECK(matrix.scales.size() == static_cast<size_t>(kRows) * groups) << matrix.scales.size();
  if (matrix.group == 0) return;
  QUIRE_CHECK(matrix.group >= kMinInt4Group && matrix.group <= kMaxInt4Group) << matrix.group;
  QUIRE_CHECK(matrix.zeros.size() == matrix.scales.size());
  for (const uint8_t zero : matrix.zeros) QUIRE_CHECK(zero <= 16) << static_cast<int>(zero);
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

void ReadAsFp8(const Checkpoint& checkpoint, Fp8Block block) {
  TensorReader tensors(checkpoint, Progress(), block);
  const auto tensor = tensors.Take("symmetric.weight", {kRows, kCols});
  if (!tensor.ok()) {
    QUIRE_CHECK(!tensor.status().message().empty());
    return;
  }
  std::vector<float> values;
  AppendAsFloat((*tensor)->bytes, *WeightType(**tensor), &values);
  QUIRE_CHECK(values.size() == static_cast<size_t>(kRows) * kCols) << values.size();
  for (const float value : values) QUIRE_CHECK(std::isfinite(value)) << value;
}

void KeepAsFp8(const Checkpoint& checkpoint, Fp8Block block) {
  TensorReader tensors(checkpoint, Progress(), block);
  const auto matrix = tensors.TakeFp8("symmetric.weight", {kRows, kCols});
  if (!matrix.ok()) {
    QUIRE_CHECK(!matrix.status().message().empty());
    return;
  }
  QUIRE_CHECK(matrix->values.size() == static_cast<size_t>(kRows) * kCols) << matrix->values.size();
  QUIRE_CHECK(matrix->scales.size() == static_cast<size_t>(kRows) * matrix->num_groups()) << matrix->scales.size();
  for (const float scale : matrix->scales) QUIRE_CHECK(std::isfinite(scale)) << scale;
  for (const int8_t value : matrix->values) QUIRE_CHECK(!std::isnan(Fp8ToFloat(static_cast<uint8_t>(value)))) << value;
}

void ReadInEveryFormat(const Checkpoint& checkpoint) {
  for (const Fp8Block block : {Fp8Block{}, Fp8Block{8, 128}, Fp8Block{128, 128}}) {
    ReadAsFp8(checkpoint, block);
    KeepAsFp8(checkpoint, block);
  }
  for (const auto format :
       {CheckpointFormat::kInt8, CheckpointFormat::kPackQuantized, CheckpointFormat::kGptq, CheckpointFormat::kAwq}) {
    for (const int group : {0, 64, 128}) {
      for (const bool is_symmetric : {false, true}) {
        TensorReader tensors(checkpoint, Progress());
        QuantizedReader reader({.format = format, .group = group, .is_symmetric = is_symmetric, .zeros_stored_less = 1},
                               &tensors);
        for (const char* name : {"symmetric.weight", "asymmetric.weight"}) {
          if (!reader.Stores(name)) continue;
          const auto matrix = reader.Read(name, kRows, kCols);
          if (matrix.ok()) {
            CheckMatrix(*matrix);
          } else {
            QUIRE_CHECK(!matrix.status().message().empty());
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire

// Input: a .safetensors file. Every format reads the matrices `symmetric` and `asymmetric` of 24 x 256 from it, and
// `symmetric` is also read as FP8.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const directory = new quire::TestDirectory();
  directory->Write("model.safetensors", std::string_view(reinterpret_cast<const char*>(data), size));
  const auto checkpoint = quire::Checkpoint::Open(directory->path());
  if (checkpoint.ok()) quire::ReadInEveryFormat(*checkpoint);
  return 0;
}
