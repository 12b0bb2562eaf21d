// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_TYPES_H_
#define QUIRE_WORKER_MODEL_GGUF_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/blocks.h"

namespace quire {

// A type of tensors in GGUF files. A row is stored in blocks of a fixed number of elements, each with its own scales.
// The types F32, F16 and BF16 have blocks of one element.
struct GgufTensorType {
  uint32_t number;  // Type number in the file.
  const char* name;
  uint32_t block_elements;
  uint32_t block_bytes;
  // Writes the `block_elements` numbers of a block. It is null for F32, F16 and BF16.
  void (*dequantize)(const uint8_t* block, float* values);
};

// Returns the type of blocks (kernels/blocks.h) of a type with this name, or nothing if it has none.
std::optional<BlockType> FindBlockType(std::string_view name);

// Returns null when the type is not supported.
const GgufTensorType* FindGgufTensorType(uint32_t number);
const GgufTensorType* FindGgufTensorType(std::string_view name);

// Returns the name of a type, supported or not. The name of an unknown type is its number.
std::string GgufTypeName(uint32_t number);

// Returns "F32, F16, ...".
std::string SupportedGgufTypes();

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_TYPES_H_
