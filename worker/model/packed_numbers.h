// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_PACKED_NUMBERS_H_
#define QUIRE_WORKER_MODEL_PACKED_NUMBERS_H_

#include <cstdint>
#include <string_view>

namespace quire {

// Unpacks whole numbers of 4 or 8 bits that checkpoints store in words of 32 bits, little-endian, the first number in
// the lowest bits unless stated otherwise. All functions write numbers in [0, 2^bits - 1], with 8 bits as the bits of a
// uint8_t. A weight is (number - zero point) * scale. Weights are written as [rows, cols], where a row is an output and
// a column is an input. `n` below is the count of numbers in a word. REQUIRES: bits is 4 or 8, and `words` has the size
// that the shape in front of each function says.

constexpr int NumbersPerWord(int bits) {
  return 32 / bits;
}
// The zero point of symmetric weights.
constexpr int MiddleNumber(int bits) {
  return 1 << (bits - 1);
}

// compressed-tensors, pack-quantized. A number in [-8, 7] is stored as that number + 8; a number of 8 bits + 128.

// Weights from words [rows, ceil(cols / n)], n numbers of a row in each.
void UnpackRows(std::string_view words, int bits, int rows, int cols, int8_t* values);
// Zero points [rows, groups] from words [ceil(rows / n), groups], n rows in each.
void UnpackZeroPoints(std::string_view words, int bits, int rows, int groups, uint8_t* zeros);

// GPTQ.

// Weights from words [cols / n, rows], n columns in each.
void UnpackGptq(std::string_view words, int bits, int rows, int cols, int8_t* values);
// Zero points [groups, rows] from words [groups, rows / n], n rows in each. Version 1 of the format stores the zero
// points less 1. It subtracted a word of n ones from each word, so that a zero point of 0 borrowed from the next one;
// the addition of `stored_less` (1 or 0) to every number of a word carries in the same way.
void UnpackGptqZeros(std::string_view words, int bits, int rows, int groups, int stored_less, uint8_t* zeros);

// AWQ, version gemm: 4 bits. The numbers of a word belong to its eight outputs in the order 0, 2, 4, 6, 1, 3, 5, 7.

// Weights from words [cols, rows / 8].
void UnpackAwq(std::string_view words, int rows, int cols, int8_t* values);
// Zero points [groups, rows] from words [groups, rows / 8].
void UnpackAwqZeros(std::string_view words, int rows, int groups, uint8_t* zeros);

// GGUF, Q4_0: blocks of 32 columns, each with a scale of 16 bits and 16 bytes. The low halves of the bytes are the
// first 16 numbers, and the high halves are the others. The zero point is MiddleNumber(4).

constexpr int kQ4BlockColumns = 32;
constexpr int kQ4BlockBytes = 18;
// Weights [cols] and scales [cols / 32] from the blocks of a row.
void UnpackQ4Row(std::string_view blocks, int8_t* values, float* scales);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_PACKED_NUMBERS_H_
