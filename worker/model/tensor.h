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

// Where the elements of a matrix or a vector are, if they are not row-major without gaps: the numbers of elements from
// the first byte of the tensor on.
struct ElementPlaces {
  int64_t first;
  int64_t row_step;
  int64_t col_step;

  int64_t Of(int64_t row, int64_t col) const { return first + row * row_step + col * col_step; }
};

// A tensor inside a mapped file: little-endian, not necessarily aligned, and row-major unless `places` is set. The
// mapping must outlive it.
struct Tensor {
  std::string name;
  std::string dtype;  // As in the file: "F32", "BF16", "F16", "I64" and so on; of a GGUF file also "Q8_0" and so on.
  std::vector<int64_t> shape;
  std::string_view bytes;
  std::optional<ElementPlaces> places = std::nullopt;
  int64_t num_sharers = 1;  // Tensors of equal size whose elements are in the same bytes.

  int64_t own_bytes() const { return static_cast<int64_t>(bytes.size()) / num_sharers; }
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

// Returns a row-major copy of a tensor of one or two dimensions. REQUIRES: WeightType(tensor), and `places` is set.
OwnedTensor Gathered(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_TENSOR_H_
