#ifndef QUIRE_WORKER_MODEL_PACKED_INT4_H_
#define QUIRE_WORKER_MODEL_PACKED_INT4_H_

#include <cstdint>
#include <string_view>

namespace quire {

// Unpacks numbers of 4 bits that checkpoints store in words of 32 bits, little-endian, eight in a word. All functions
// write numbers in [0, 15]; a weight is (number - zero point) * scale. They write weights as [rows, cols], where a row
// is an output and a column is an input. REQUIRES: `words` has the size that the shape in front of each function says.

constexpr int kInt4NumbersPerWord = 8;
constexpr int kInt4Middle = 8;  // The zero point of symmetric weights.

// compressed-tensors, pack-quantized. A number in [-8, 7] is stored as that number + 8, the first in the lowest bits.

// Weights from words [rows, ceil(cols / 8)], eight numbers of a row in each.
void UnpackRows(std::string_view words, int rows, int cols, int8_t* values);
// Zero points [rows, groups] from words [ceil(rows / 8), groups], eight rows in each.
void UnpackZeroPoints(std::string_view words, int rows, int groups, uint8_t* zeros);

// GPTQ.

// Weights from words [cols / 8, rows], eight columns in each, the first in the lowest bits.
void UnpackGptq(std::string_view words, int rows, int cols, int8_t* values);
// Zero points [groups, rows] from words [groups, rows / 8], eight rows in each, the first in the lowest bits. Version 1
// of the format stores the zero points less 1. It subtracted a word of eight ones from each word, so that a zero point
// of 0 borrowed from the next one; the addition of `stored_less` (1 or 0) to every number of a word carries in the same
// way.
void UnpackGptqZeros(std::string_view words, int rows, int groups, int stored_less, uint8_t* zeros);

// AWQ, version gemm. The numbers of a word belong to its eight outputs in the order 0, 2, 4, 6, 1, 3, 5, 7.

// Weights from words [cols, rows / 8].
void UnpackAwq(std::string_view words, int rows, int cols, int8_t* values);
// Zero points [groups, rows] from words [groups, rows / 8].
void UnpackAwqZeros(std::string_view words, int rows, int groups, uint8_t* zeros);

// GGUF, Q4_0: blocks of 32 columns, each with a scale of 16 bits and 16 bytes. The low halves of the bytes are the
// first 16 numbers, and the high halves are the others. The zero point is kInt4Middle.

constexpr int kQ4BlockColumns = 32;
constexpr int kQ4BlockBytes = 18;
// Weights [cols] and scales [cols / 32] from the blocks of a row.
void UnpackQ4Row(std::string_view blocks, int8_t* values, float* scales);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_PACKED_INT4_H_
