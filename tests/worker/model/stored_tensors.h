// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_WORKER_MODEL_STORED_TENSORS_H_
#define QUIRE_TESTS_WORKER_MODEL_STORED_TENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/worker/model/model_files.h"

namespace quire {

// A tensor of a .safetensors file.
struct StoredTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, StoredTensor>;  // By their names.

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Returns a .safetensors file with these tensors.
inline std::string SafetensorsFileOf(const Tensors& tensors) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  return SafetensorsFileOf(header.dump(), 0) + data;
}

}  // namespace quire

#endif  // QUIRE_TESTS_WORKER_MODEL_STORED_TENSORS_H_
