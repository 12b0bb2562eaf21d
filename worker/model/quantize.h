#ifndef QUIRE_WORKER_MODEL_QUANTIZE_H_
#define QUIRE_WORKER_MODEL_QUANTIZE_H_

#include <cstdint>
#include <vector>

#include "kernels/linear.h"

namespace quire {

// How the matrices of the decoder layers are multiplied. Embedding, norms, biases and the output matrix keep the
// precision of their file.
enum class Quantization {
  kNone,  // In the precision of the file.
  kInt8,  // Weights of 8 bits with a scale per row, inputs of 8 bits with a scale per token.
};

// Returns "none" or "int8".
const char* Name(Quantization quantization);

// A matrix of whole numbers with scales.
struct QuantizedMatrix {
  std::vector<int8_t> values;  // [rows, cols]
  std::vector<float> scales;   // [rows]
  int rows;
  int cols;

  // Valid until the matrix changes.
  QuantizedMatrixView View() const { return {values.data(), scales.data(), rows, cols}; }
};

// Rounds every row to whole numbers in [-127, 127]: the scale is the largest magnitude of the row divided by 127, and
// ties round to even. A row of zeros has the scale 0. The result is the same on every machine. REQUIRES: all elements
// are finite.
QuantizedMatrix QuantizeToInt8(const MatrixView& matrix);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZE_H_
