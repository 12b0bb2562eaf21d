// SPDX-License-Identifier: Apache-2.0

#include "worker/model/mxfp4.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
constexpr uint8_t kNoNumber = 255;
constexpr int kScaleBias = 127;

}  // namespace

absl::StatusOr<OwnedTensor> DequantizeMxfp4(const Tensor& matrix, const Tensor& scales) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  const ElementPlaces numbers_at = matrix.places.value_or(ElementPlaces{0, cols, 1});
  const ElementPlaces scales_at = scales.places.value_or(ElementPlaces{0, cols / kMxfp4Group, 1});
  const size_t size = static_cast<size_t>(rows * cols) * sizeof(BFloat16);
  OwnedTensor result{.tensor = matrix, .bytes = std::make_unique_for_overwrite<char[]>(size)};
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < cols / kMxfp4Group; ++group) {
      const auto scale = static_cast<uint8_t>(scales.bytes[scales_at.Of(row, group)]);
      if (scale == kNoNumber) {
        return InvalidArgument("tensor ", scales.name, " has the scale 255 in row ", row, " and column ", group,
                               ", which is no number");
      }
      const float factor = std::ldexp(1.0f, scale - kScaleBias);
      const char* const numbers = &matrix.bytes[numbers_at.Of(row, group * kMxfp4Group) / 2];
      for (int i = 0; i < kMxfp4Group; ++i) {
        const unsigned byte = static_cast<uint8_t>(numbers[i / 2]);
        const BFloat16 value = ToBFloat16(kNumbers[i % 2 == 0 ? byte & 15 : byte >> 4] * factor);
        std::memcpy(to, &value, sizeof(value));
        to += sizeof(value);
      }
    }
  }
  result.tensor.dtype = "BF16";
  result.tensor.places.reset();
  result.tensor.bytes = {result.bytes.get(), size};
  return result;
}

}  // namespace quire
