// SPDX-License-Identifier: Apache-2.0

#include "tools/make_model/safetensors_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "kernels/half_float.h"
#include "tools/make_model/random_tensor.h"
#include "worker/model/safetensors_header.h"

namespace quire::make_model {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

const char* TypeName(DataType type) {
  return type == DataType::kFloat32 ? "F32" : type == DataType::kBFloat16 ? "BF16" : "F16";
}

std::string Header(const std::vector<TensorSpec>& specs, DataType type) {
  std::vector<TensorEntry> entries;
  for (const TensorSpec& spec : specs) {
    entries.push_back({spec.name, TypeName(type), spec.shape, static_cast<uint64_t>(spec.size()) * SizeOf(type)});
  }
  return SafetensorsHeader(entries);
}

template <typename Element>
void WriteTensor(const TensorSpec& spec, const RandomTensor& numbers, std::ofstream* out) {
  std::vector<Element> buffer;
  buffer.reserve(kBufferBytes / sizeof(Element));
  const int64_t size = spec.size();
  for (int64_t i = 0; i < size && out->good(); i += 4) {
    float values[4];
    numbers.Group(static_cast<uint64_t>(i / 4), values);
    for (int64_t j = 0; j < std::min<int64_t>(4, size - i); ++j) {
      buffer.emplace_back();
      FromFloat(values[j], &buffer.back());
    }
    if (buffer.size() + 4 > buffer.capacity() || i + 4 >= size) {
      out->write(reinterpret_cast<const char*>(buffer.data()),
                 static_cast<std::streamsize>(buffer.size() * sizeof(Element)));
      buffer.clear();
    }
  }
}

}  // namespace

absl::Status WriteRandomTensors(const std::vector<TensorSpec>& specs, DataType type, uint64_t seed,
                                const std::string& path) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << Header(specs, type);
  for (size_t i = 0; i < specs.size() && out.good(); ++i) {
    const RandomTensor numbers(seed, static_cast<uint32_t>(i), specs[i].center, specs[i].width);
    switch (type) {
      case DataType::kFloat32:
        WriteTensor<float>(specs[i], numbers, &out);
        break;
      case DataType::kBFloat16:
        WriteTensor<BFloat16>(specs[i], numbers, &out);
        break;
      case DataType::kFloat16:
        WriteTensor<Float16>(specs[i], numbers, &out);
        break;
    }
  }
  out.close();
  if (out.good()) return absl::OkStatus();
  std::remove(path.c_str());
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace quire::make_model
