// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_TYPES_H_
#define QUIRE_KERNELS_TYPES_H_

#include <cstddef>
#include <cstdint>

namespace quire {

// Element types of weights and activations, and of K and V (see KvType for more of these).
enum class DataType : uint8_t { kFloat32, kBFloat16, kFloat16 };

constexpr size_t SizeOf(DataType type) {
  return type == DataType::kFloat32 ? 4 : 2;
}

constexpr const char* Name(DataType type) {
  return type == DataType::kFloat32 ? "float32" : type == DataType::kBFloat16 ? "bfloat16" : "float16";
}

// The order of the input of a multiplication by a matrix: rows of [num_tokens, cols], or one of the orders of the
// backend, which only the backend knows. Those take no more memory than rows of activations.
enum class InputLayout : uint8_t { kRows };

}  // namespace quire

#endif  // QUIRE_KERNELS_TYPES_H_
