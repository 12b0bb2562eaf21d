// SPDX-License-Identifier: Apache-2.0

#include "worker/model/mxfp4.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/status.h"
#include "kernels/blocks.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

constexpr float kNumbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
constexpr uint8_t kNoNumber = 255;
constexpr int kScaleBias = 127;

// The groups of a matrix, whose numbers and scales are in two tensors.
class Groups {
 public:
  Groups(const Tensor& matrix, const Tensor& scales)
      : matrix_(matrix),
        scales_(scales),
        numbers_at_(matrix.places.value_or(ElementPlaces{0, matrix.shape[1], 1})),
        scales_at_(scales.places.value_or(ElementPlaces{0, matrix.shape[1] / kMxfp4Group, 1})) {}

  uint8_t Scale(int64_t row, int64_t group) const {
    return static_cast<uint8_t>(scales_.bytes[scales_at_.Of(row, group)]);
  }
  // Returns the kMxfp4GroupBytes bytes of the numbers.
  const char* Numbers(int64_t row, int64_t group) const {
    return &matrix_.bytes[numbers_at_.Of(row, group * kMxfp4Group) / 2];
  }

 private:
  const Tensor& matrix_;
  const Tensor& scales_;
  const ElementPlaces numbers_at_;
  const ElementPlaces scales_at_;
};

// Returns the bits of number i.
unsigned CodeAt(const char* numbers, int i) {
  const unsigned byte = static_cast<uint8_t>(numbers[i / 2]);
  return i % 2 == 0 ? byte & 15 : byte >> 4;
}

}  // namespace

absl::StatusOr<OwnedTensor> DequantizeMxfp4(const Tensor& matrix, const Tensor& scales) {
  const int64_t rows = matrix.shape[0], cols = matrix.shape[1];
  const Groups groups(matrix, scales);
  const size_t size = static_cast<size_t>(rows * cols) * sizeof(BFloat16);
  OwnedTensor result{.tensor = matrix, .bytes = std::make_unique_for_overwrite<char[]>(size)};
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < cols / kMxfp4Group; ++group) {
      const uint8_t scale = groups.Scale(row, group);
      if (scale == kNoNumber) {
        return InvalidArgument("tensor ", scales.name, " has the scale 255 in row ", row, " and column ", group,
                               ", which is no number");
      }
      const float factor = std::ldexp(1.0f, scale - kScaleBias);
      const char* const numbers = groups.Numbers(row, group);
      for (int i = 0; i < kMxfp4Group; ++i) {
        const BFloat16 value = ToBFloat16(kNumbers[CodeAt(numbers, i)] * factor);
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

OwnedTensor Mxfp4InBlocks(const Tensor& matrix, const Tensor& scales) {
  const int64_t rows = matrix.shape[0], num_groups = matrix.shape[1] / kMxfp4Group;
  const Groups groups(matrix, scales);
  const size_t size = static_cast<size_t>(rows * num_groups) * ShapeOf(BlockType::kMXFP4).bytes;
  OwnedTensor result{.tensor = matrix, .bytes = std::make_unique_for_overwrite<char[]>(size)};
  char* to = result.bytes.get();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < num_groups; ++group) {
      const char* const numbers = groups.Numbers(row, group);
      *to++ = static_cast<char>(groups.Scale(row, group));
      for (int i = 0; i < kMxfp4GroupBytes; ++i) {
        *to++ = static_cast<char>(CodeAt(numbers, i) | CodeAt(numbers, i + kMxfp4GroupBytes) << 4);
      }
    }
  }
  result.tensor.places.reset();
  result.tensor.bytes = {result.bytes.get(), size};
  return result;
}

}  // namespace quire
