// SPDX-License-Identifier: Apache-2.0

#include "worker/model/tensor_values.h"

#include <algorithm>
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

// `exponent` has the bits of the exponent, which are all set in infinities and in NaNs. The inner loop has no branch,
// so that the compiler can use vector instructions.
template <typename Bits>
std::optional<size_t> FirstWithExponent(std::string_view bytes, Bits exponent) {
  constexpr size_t kPieceBytes = 4096;
  const auto bits_at = [&](size_t at) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof(Bits));
    return bits;
  };
  for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
    const size_t end = std::min(begin + kPieceBytes, bytes.size());
    Bits found = 0;
    for (size_t at = begin; at < end; at += sizeof(Bits)) found |= (bits_at(at) & exponent) == exponent ? 1 : 0;
    if (found == 0) continue;
    for (size_t at = begin; at < end; at += sizeof(Bits)) {
      if ((bits_at(at) & exponent) == exponent) return at / sizeof(Bits);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<size_t> FirstNotFinite(std::string_view bytes, DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return FirstWithExponent<uint32_t>(bytes, 0x7f800000);
    case DataType::kBFloat16:
      return FirstWithExponent<uint16_t>(bytes, 0x7f80);
    case DataType::kFloat16:
      return FirstWithExponent<uint16_t>(bytes, 0x7c00);
  }
  return std::nullopt;
}

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

bool IsAllZero(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char byte) { return byte == 0; });
}

bool IsAllOne(std::string_view bytes, DataType type) {
  std::vector<float> values;
  AppendAsFloat(bytes, type, &values);
  return std::ranges::all_of(values, [](float value) { return value == 1; });
}

AlignedBytes::AlignedBytes(std::string_view bytes) : data_(bytes.data()) {
  constexpr uintptr_t kAlignment = alignof(float);
  if (reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment == 0) return;
  copy_ = std::make_unique<char[]>(bytes.size());
  std::memcpy(copy_.get(), bytes.data(), bytes.size());
  data_ = copy_.get();
}

}  // namespace quire
