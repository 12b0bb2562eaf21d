// SPDX-License-Identifier: Apache-2.0

#include "worker/model/packed_numbers.h"

#include <cstring>

#include "kernels/half_float.h"

namespace quire {
namespace {

constexpr int kAwqPerWord = NumbersPerWord(4);
constexpr int kAwqOrder[kAwqPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};

uint32_t WordAt(std::string_view words, int64_t index) {
  uint32_t word = 0;
  for (int i = 3; i >= 0; --i) word = word << 8 | static_cast<uint8_t>(words[index * 4 + i]);
  return word;
}

uint8_t NumberOf(uint32_t word, int index, int bits = 4) {
  return word >> index * bits & ((1 << bits) - 1);
}

}  // namespace

void UnpackRows(std::string_view words, int bits, int rows, int cols, int8_t* values) {
  const int per_word = NumbersPerWord(bits);
  const int64_t words_per_row = (cols + per_word - 1) / per_word;
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < cols; ++k) {
      const uint32_t word = WordAt(words, row * words_per_row + k / per_word);
      *values++ = static_cast<int8_t>(NumberOf(word, k % per_word, bits));
    }
  }
}

void UnpackZeroPoints(std::string_view words, int bits, int rows, int groups, uint8_t* zeros) {
  const int per_word = NumbersPerWord(bits);
  for (int row = 0; row < rows; ++row) {
    for (int group = 0; group < groups; ++group) {
      *zeros++ = NumberOf(WordAt(words, int64_t{row / per_word} * groups + group), row % per_word, bits);
    }
  }
}

void UnpackGptq(std::string_view words, int bits, int rows, int cols, int8_t* values) {
  const int per_word = NumbersPerWord(bits);
  for (int row = 0; row < rows; ++row) {
    for (int k = 0; k < cols; ++k) {
      const uint32_t word = WordAt(words, int64_t{k / per_word} * rows + row);
      *values++ = static_cast<int8_t>(NumberOf(word, k % per_word, bits));
    }
  }
}

void UnpackGptqZeros(std::string_view words, int bits, int rows, int groups, int stored_less, uint8_t* zeros) {
  const int per_word = NumbersPerWord(bits);
  const uint32_t less = stored_less * (bits == 4 ? uint32_t{0x11111111} : uint32_t{0x01010101});
  for (int64_t i = 0; i < int64_t{groups} * (rows / per_word); ++i) {
    const uint32_t word = WordAt(words, i) + less;
    for (int j = 0; j < per_word; ++j) *zeros++ = NumberOf(word, j, bits);
  }
}

void UnpackAwq(std::string_view words, int rows, int cols, int8_t* values) {
  const int words_per_column = rows / kAwqPerWord;
  for (int k = 0; k < cols; ++k) {
    for (int i = 0; i < words_per_column; ++i) {
      const uint32_t word = WordAt(words, int64_t{k} * words_per_column + i);
      for (int j = 0; j < kAwqPerWord; ++j) {
        values[(int64_t{i} * kAwqPerWord + kAwqOrder[j]) * cols + k] = static_cast<int8_t>(NumberOf(word, j));
      }
    }
  }
}

void UnpackAwqZeros(std::string_view words, int rows, int groups, uint8_t* zeros) {
  for (int64_t i = 0; i < int64_t{groups} * (rows / kAwqPerWord); ++i, zeros += kAwqPerWord) {
    const uint32_t word = WordAt(words, i);
    for (int j = 0; j < kAwqPerWord; ++j) zeros[kAwqOrder[j]] = NumberOf(word, j);
  }
}

void UnpackQ4Row(std::string_view blocks, int8_t* values, float* scales) {
  constexpr int kHalf = kQ4BlockColumns / 2;
  for (; !blocks.empty(); blocks.remove_prefix(kQ4BlockBytes), values += kQ4BlockColumns) {
    Float16 scale;
    memcpy(&scale, blocks.data(), sizeof(scale));
    *scales++ = ToFloat(scale);
    for (int i = 0; i < kHalf; ++i) {
      const auto byte = static_cast<uint8_t>(blocks[sizeof(scale) + i]);
      values[i] = static_cast<int8_t>(byte & 15);
      values[i + kHalf] = static_cast<int8_t>(byte >> 4);
    }
  }
}

}  // namespace quire
