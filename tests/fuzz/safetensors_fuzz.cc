// SPDX-License-Identifier: Apache-2.0

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "worker/model/safetensors.h"

// Input: a .safetensors file. Every tensor that is found lies within the file.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view contents(reinterpret_cast<const char*>(data), size);
  const auto tensors = quire::ParseSafetensors(contents, "model.safetensors");
  if (!tensors.ok()) {
    QUIRE_CHECK(!tensors.status().message().empty());
    return 0;
  }
  size_t num_bytes = 0;
  for (const quire::Tensor& tensor : *tensors) {
    QUIRE_CHECK(tensor.bytes.data() >= contents.data() &&
                tensor.bytes.data() + tensor.bytes.size() <= contents.data() + contents.size())
        << quire::Describe(tensor);
    num_bytes += tensor.bytes.size();
  }
  QUIRE_CHECK(num_bytes <= size) << num_bytes;
  return 0;
}
