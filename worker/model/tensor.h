// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_TENSOR_H_
#define QUIRE_WORKER_MODEL_TENSOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/types.h"

namespace quire {

// The names of the tensors of a layer begin with this, its number and a dot.
inline constexpr char kLayersPrefix[] = "model.layers.";
inline constexpr char kEmbeddingName[] = "model.embed_tokens.weight";
inline constexpr char kOutputName[] = "lm_head.weight";

// A tensor inside a mapped file: row-major, little-endian and not necessarily aligned. The mapping must outlive it.
struct Tensor {
  std::string name;
  std::string dtype;  // As in the file: "F32", "BF16", "F16", "I64" and so on; of a GGUF file also "Q8_0" and so on.
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// A tensor with its own memory.
struct OwnedTensor {
  Tensor tensor;  // Its bytes are in `bytes`.
  std::unique_ptr<char[]> bytes;
};

// Returns type and shape, as in "F32 [512, 64]".
std::string Describe(const Tensor& tensor);

// Returns the type of the elements, if weights may have that type.
std::optional<DataType> WeightType(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TENSOR_H_
