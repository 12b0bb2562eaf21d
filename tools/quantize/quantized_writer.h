// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_QUANTIZE_QUANTIZED_WRITER_H_
#define QUIRE_TOOLS_QUANTIZE_QUANTIZED_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/quantize.h"

namespace quire::quantize {

struct WriteOptions {
  std::string model;                          // A model directory with weights of 16 or 32 bits.
  std::string output;                         // A folder that is empty or does not exist.
  Quantization width;                         // kInt8, kInt4 or kFp8.
  int64_t max_file_bytes = int64_t{4} << 30;  // When a file has reached this size, another one begins.
};

// What was written.
struct WrittenCheckpoint {
  int num_matrices = 0;
  int num_files = 0;  // Files of weights.
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int group = 0;  // Of kInt4: columns that share a scale in the file.
};

// Writes a checkpoint of compressed-tensors whose matrices of the decoder layers have the numbers that the worker
// computes with --quantize, or one whose matrices have FP8 in blocks (fp8_blocks.h). Everything else is copied: the
// other tensors, and the other files of the directory, such as the tokenizer. At most one matrix is in memory. A model
// that lacks tensors of its config is refused. A failure removes what was written. If the program is killed, files of
// `output` whose names end with ".unfinished" are partial, and without config.json the folder is no model.
//
// compressed-tensors allows no shorter group at the end of a row. If 128 does not divide the columns of all matrices,
// the groups of the file are their parts of 64 or 32 columns, with the same scales and zero points.
absl::StatusOr<WrittenCheckpoint> WriteQuantizedCheckpoint(const WriteOptions& options);

}  // namespace quire::quantize

#endif  // QUIRE_TOOLS_QUANTIZE_QUANTIZED_WRITER_H_
