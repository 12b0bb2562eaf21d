// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_SAFETENSORS_HEADER_H_
#define QUIRE_WORKER_MODEL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// What the header of a .safetensors file says of a tensor.
struct TensorEntry {
  std::string name;
  std::string dtype;  // As in the file, for example "BF16".
  std::vector<int64_t> shape;
  uint64_t num_bytes;
};

// Returns the beginning of a .safetensors file: the length of the header and the header. After it, the bytes of the
// tensors follow each other in this order. They begin at a multiple of 8 bytes.
std::string SafetensorsHeader(const std::vector<TensorEntry>& tensors);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_SAFETENSORS_HEADER_H_
