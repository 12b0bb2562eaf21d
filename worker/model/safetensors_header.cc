// SPDX-License-Identifier: Apache-2.0

#include "worker/model/safetensors_header.h"

#include "nlohmann/json.hpp"

namespace quire {

std::string SafetensorsHeader(const std::vector<TensorEntry>& tensors) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t offset = 0;
  for (const TensorEntry& tensor : tensors) {
    const uint64_t end = offset + tensor.num_bytes;
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length;
  for (int i = 0; i < 8; ++i) length.push_back(static_cast<char>(uint64_t{text.size()} >> (8 * i)));
  return length + text;
}

}  // namespace quire
