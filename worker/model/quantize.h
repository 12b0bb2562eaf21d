// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_QUANTIZE_H_
#define QUIRE_WORKER_MODEL_QUANTIZE_H_

#include <cstdint>
#include <vector>

#include "kernels/linear.h"

namespace quire {

// How the matrices of the decoder layers are multiplied. Embedding, norms and biases
// keep the precision of their file.
enum class Quantization {
  kNone,  // They keep the precision of the file.
  kInt8,  // Weights of 8 bits with a scale per row, inputs of 8 bits with a scale per token. A GPU can keep the inputs.
  kInt4,  // Weights of 4 bits with a scale and a zero point per group of columns; see Int4Inputs.
  kFp8,   // Weights of FP8 as in the file, with a scale per row or per group of columns. Some GPUs round inputs to FP8
          // (Backend::RoundsQuantizedInputs).
};

// Returns "none", "int8", "int4" or "fp8".
const char* Name(Quantization quantization);

// What a product by weights of 4 bits does to its input on a CPU. On a GPU it never rounds it.
enum class Int4Inputs {
  kInt8,      // Rounds it to 8 bits, with a scale per token and group of columns (W4A8).
  kBFloat16,  // Rounds it to bfloat16, and with AMX the weights, too (W4A16). CPUs without bfloat16 keep it.
  kFloat32,   // Keeps it (W4A16). It is slower with many rows.
};

// Returns "int8", "bfloat16" or "float32".
const char* Name(Int4Inputs inputs);

// Returns the format of matrices of this width. REQUIRES: it is not kNone.
QuantizedFormat FormatOf(Quantization width, Int4Inputs inputs);

// How weights are rounded while a model is loaded, and how products by weights of 4 bits are computed.
struct WeightRounding {
  // Whether matrices in blocks of GGUF files (kernels/blocks.h) stay in them where the backend multiplies them.
  // Otherwise they are converted to 16 bits. In a loaded model: whether some are in blocks.
  bool keeps_blocks = true;
  Quantization layers = Quantization::kNone;   // The matrices of the layers.
  bool output = false;                         // Whether the output matrix is rounded as with kInt8.
  Int4Inputs int4_inputs = Int4Inputs::kInt8;  // Also for weights that have 4 bits in the checkpoint.
};

// A matrix of numbers of at most 8 bits with scales. QuantizedMatrixView explains the fields.
struct QuantizedMatrix {
  std::vector<int8_t> values;
  std::vector<float> scales;
  int rows;
  int cols;
  int group = 0;               // Columns that share a scale in a matrix of 4 bits or FP8; 0 in one of int8.
  std::vector<uint8_t> zeros;  // For a matrix of 4 bits.
  // For a matrix of 4 bits whose columns are not in the order of the input. Otherwise it is empty.
  std::vector<int32_t> order;

  bool is_fp8 = false;
  bool has_blocks = false;  // For a matrix of FP8.

  int num_groups() const { return (cols + group - 1) / group; }
  // Valid until the matrix changes.
  QuantizedMatrixView View(Int4Inputs inputs) const;
};

// Rounds every row to whole numbers in [-127, 127]: the scale is the largest magnitude of the row divided by 127, and
// ties round to even. A row of zeros has the scale 0. The result is the same on every machine. REQUIRES: all elements
// are finite.
QuantizedMatrix QuantizeToInt8(const MatrixView& matrix);

// Rounds every group of 128 columns of a row to whole numbers in [0, 15]: the scale is a 15th of the distance from the
// smallest element (or 0, if that is smaller) to the largest (or 0), and the zero point is the number of 0. REQUIRES:
// all elements are finite.
QuantizedMatrix QuantizeToInt4(const MatrixView& matrix);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZE_H_
