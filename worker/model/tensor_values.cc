#include "worker/model/tensor_values.h"

#include <cstdint>
#include <cstring>

#include "kernels/half_float.h"

namespace quire {
namespace {

template <typename Element>
void Append(std::string_view bytes, std::vector<float>* values) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + i, sizeof(Element));
    values->push_back(ToFloat(element));
  }
}

}  // namespace

void AppendAsFloat(std::string_view bytes, DataType type, std::vector<float>* values) {
  switch (type) {
    case DataType::kFloat32:
      return Append<float>(bytes, values);
    case DataType::kBFloat16:
      return Append<BFloat16>(bytes, values);
    case DataType::kFloat16:
      return Append<Float16>(bytes, values);
  }
}

AlignedBytes::AlignedBytes(std::string_view bytes) : data_(bytes.data()) {
  constexpr uintptr_t kAlignment = alignof(float);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment == 0) return;
  copy_ = std::make_unique<char[]>(bytes.size());
  std::memcpy(copy_.get(), bytes.data(), bytes.size());
  data_ = copy_.get();
}

}  // namespace quire
