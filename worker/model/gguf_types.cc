// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf_types.h"

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/half_float.h"

namespace quire {
namespace {

constexpr int kSmallBlock = 32;   // Elements of the types with one scale.
constexpr int kSuperBlock = 256;  // Elements of the types whose name ends in K.
constexpr int kScaleBytes = 12;   // Scales and minima of a block of Q4_K or Q5_K.

float HalfAt(const uint8_t* bytes) {
  Float16 half;
  std::memcpy(&half, bytes, sizeof(half));
  return ToFloat(half);
}

// The numbers of a small block with 4 bits in `quants`: the low halves of the 16 bytes are the first 16 numbers, and
// the high halves are the others. Bit i of `high` is the fifth bit of number i.
template <typename Convert>
void ForEachNumber(const uint8_t* quants, uint32_t high, float* values, const Convert& convert) {
  constexpr int kHalf = kSmallBlock / 2;
  for (int i = 0; i < kHalf; ++i) {
    values[i] = convert(int(quants[i] & 15) | int(high >> i & 1) << 4);
    values[i + kHalf] = convert(int(quants[i] >> 4) | int(high >> (i + kHalf) & 1) << 4);
  }
}

uint32_t WordAt(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Scale, 16 bytes of numbers in [0, 15]; 8 means zero.
void DequantizeQ4_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  ForEachNumber(block + 2, 0, values, [&](int q) { return scale * float(q - 8); });
}

// Scale, minimum, 16 bytes of numbers in [0, 15].
void DequantizeQ4_1(const uint8_t* block, float* values) {
  const float scale = HalfAt(block), minimum = HalfAt(block + 2);
  ForEachNumber(block + 4, 0, values, [&](int q) { return scale * float(q) + minimum; });
}

// Scale, 32 fifth bits, 16 bytes; 16 means zero.
void DequantizeQ5_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  ForEachNumber(block + 6, WordAt(block + 2), values, [&](int q) { return scale * float(q - 16); });
}

// Scale, minimum, 32 fifth bits, 16 bytes.
void DequantizeQ5_1(const uint8_t* block, float* values) {
  const float scale = HalfAt(block), minimum = HalfAt(block + 2);
  ForEachNumber(block + 8, WordAt(block + 4), values, [&](int q) { return scale * float(q) + minimum; });
}

// Scale, 32 numbers in [-128, 127].
void DequantizeQ8_0(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  for (int i = 0; i < kSmallBlock; ++i) values[i] = scale * float(static_cast<int8_t>(block[2 + i]));
}

// The scale and the minimum, of 6 bits, of one of the eight groups of 32 columns. The first four groups have them in
// the low bits of bytes 0 to 3 and 4 to 7. The others have their low halves in bytes 8 to 11, and their upper bits in
// the two bits that the first groups leave.
void ScaleAndMinimum(const uint8_t* packed, int group, int* scale, int* minimum) {
  if (group < 4) {
    *scale = packed[group] & 63;
    *minimum = packed[group + 4] & 63;
  } else {
    *scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
    *minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
  }
}

// The numbers of Q4_K and Q5_K: 32 bytes hold two groups of 32 columns, the first in the low halves. Bit g of high[i]
// is the fifth bit of column i of group g.
void DequantizeGroups(const uint8_t* block, const uint8_t* high, const uint8_t* quants, float* values) {
  const float scale = HalfAt(block), minimum = HalfAt(block + 2);
  for (int group = 0; group < kSuperBlock / kSmallBlock; ++group) {
    int group_scale, group_minimum;
    ScaleAndMinimum(block + 4, group, &group_scale, &group_minimum);
    const float d = scale * float(group_scale), m = minimum * float(group_minimum);
    const uint8_t* bytes = quants + group / 2 * kSmallBlock;
    for (int i = 0; i < kSmallBlock; ++i) {
      int q = group % 2 == 0 ? bytes[i] & 15 : bytes[i] >> 4;
      if (high != nullptr) q |= (high[i] >> group & 1) << 4;
      *values++ = d * float(q) - m;
    }
  }
}

// Scale, minimum, 12 bytes of scales and minima of groups, 128 bytes of numbers.
void DequantizeQ4_K(const uint8_t* block, float* values) {
  DequantizeGroups(block, nullptr, block + 4 + kScaleBytes, values);
}

// The same with 32 bytes of fifth bits before the numbers.
void DequantizeQ5_K(const uint8_t* block, float* values) {
  const uint8_t* high = block + 4 + kScaleBytes;
  DequantizeGroups(block, high, high + kSuperBlock / 8, values);
}

// 128 bytes of low halves, 64 bytes of upper bits, 16 scales of 16 columns, scale; 32 means zero. Each half of the
// block has 64 bytes of low halves and 32 of upper bits, for four runs of 32 columns.
void DequantizeQ6_K(const uint8_t* block, float* values) {
  const uint8_t* low = block;
  const uint8_t* high = block + kSuperBlock / 2;
  const uint8_t* scales = high + kSuperBlock / 4;
  const float scale = HalfAt(scales + kSuperBlock / 16);
  for (int at = 0; at < kSuperBlock; ++at) {
    const int half = at / 128, run = at / 32 % 4, i = at % 32;
    const uint8_t byte = low[half * 64 + run % 2 * 32 + i];
    const int upper = high[half * 32 + i] >> 2 * run & 3;
    const int q = ((run < 2 ? byte & 15 : byte >> 4) | upper << 4) - 32;
    values[at] = scale * float(static_cast<int8_t>(scales[at / 16])) * float(q);
  }
}

// Scale, 16 bytes of codes.
void DequantizeIQ4_NL(const uint8_t* block, float* values) {
  const float scale = HalfAt(block);
  ForEachNumber(block + 2, 0, values, [&](int code) { return scale * float(kIQ4_NLNumbers[code]); });
}

// The exponent of a power of two, 16 bytes of codes.
void DequantizeMXFP4(const uint8_t* block, float* values) {
  const float scale = std::ldexp(1.0f, int{block[0]} - kMXFP4ScaleBias);
  ForEachNumber(block + 1, 0, values, [&](int code) { return scale * float(kMXFP4Numbers[code]); });
}

constexpr GgufTensorType kSupported[] = {
    {0, "F32", 1, 4, nullptr},
    {1, "F16", 1, 2, nullptr},
    {30, "BF16", 1, 2, nullptr},
    {8, "Q8_0", kSmallBlock, 34, DequantizeQ8_0},
    {2, "Q4_0", kSmallBlock, 18, DequantizeQ4_0},
    {3, "Q4_1", kSmallBlock, 20, DequantizeQ4_1},
    {6, "Q5_0", kSmallBlock, 22, DequantizeQ5_0},
    {7, "Q5_1", kSmallBlock, 24, DequantizeQ5_1},
    {12, "Q4_K", kSuperBlock, 144, DequantizeQ4_K},
    {13, "Q5_K", kSuperBlock, 176, DequantizeQ5_K},
    {14, "Q6_K", kSuperBlock, 210, DequantizeQ6_K},
    {20, "IQ4_NL", kSmallBlock, 18, DequantizeIQ4_NL},
    {39, "MXFP4", kSmallBlock, 17, DequantizeMXFP4},
};

struct NamedType {
  uint32_t number;
  const char* name;
};
constexpr NamedType kOthers[] = {
    {9, "Q8_1"},   {10, "Q2_K"},  {11, "Q3_K"},  {15, "Q8_K"},   {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},    {26, "I32"},
    {27, "I64"},   {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},  {35, "TQ2_0"},   {40, "NVFP4"},  {41, "Q1_0"},
};

}  // namespace

std::optional<BlockType> FindBlockType(std::string_view name) {
  if (name == "Q8_0") return BlockType::kQ8_0;
  if (name == "Q4_K") return BlockType::kQ4_K;
  if (name == "Q5_K") return BlockType::kQ5_K;
  if (name == "Q6_K") return BlockType::kQ6_K;
  if (name == "IQ4_NL") return BlockType::kIQ4_NL;
  if (name == "MXFP4") return BlockType::kMXFP4;
  return std::nullopt;
}

const GgufTensorType* FindGgufTensorType(uint32_t number) {
  for (const GgufTensorType& type : kSupported) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

const GgufTensorType* FindGgufTensorType(std::string_view name) {
  for (const GgufTensorType& type : kSupported) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string GgufTypeName(uint32_t number) {
  if (const GgufTensorType* type = FindGgufTensorType(number)) return type->name;
  for (const NamedType& type : kOthers) {
    if (type.number == number) return type.name;
  }
  return absl::StrCat(number);
}

std::string SupportedGgufTypes() {
  std::string names;
  for (const GgufTensorType& type : kSupported) absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
  return names;
}

}  // namespace quire
