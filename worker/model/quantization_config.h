// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_
#define QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "worker/model/fp8.h"
#include "worker/model/json_reader.h"
#include "worker/model/quantize.h"

namespace quire {

// How a checkpoint stores the matrices of the layers.
enum class CheckpointFormat {
  kPlain,          // They are floating-point numbers.
  kInt8,           // compressed-tensors, int-quantized: 8 bits, a scale per row, inputs rounded per token (W8A8).
  kPackQuantized,  // compressed-tensors, pack-quantized: 4 or 8 bits, a scale and possibly a zero point per group.
  kGptq,           // GPTQ with 4 or 8 bits.
  kAwq,            // AWQ with 4 bits, version gemm.
  kFp8,            // FP8 with scales. Such a matrix can be dequantized as well.
  kGgufQ4_0,       // Q4_0 of GGUF: 4 bits, a scale per 32 columns. Such a matrix can be dequantized as well.
};

// A quantized checkpoint may have some matrices that are not quantized. These are the numbers of such stacks of each
// kind (LayerStacks).
struct PlainStacks {
  int qkv = 0;
  int attention_output = 0;
  int gate_up = 0;
  int down = 0;
  int expert_gate_up = 0;
  int expert_down = 0;
  int shared_gate_up = 0;
  int shared_down = 0;
};

// Matrices in blocks of a GGUF file whose bits can stay as they are.
struct BlockWeights {
  int64_t weights = 0;  // Numbers.
  int64_t bytes = 0;    // In memory.
};
// Those of the layers, and of the other two matrices.
struct StoredBlocks {
  BlockWeights layers;
  BlockWeights embedding;
  BlockWeights output;          // Empty if the embedding is the output matrix.
  std::set<std::string> types;  // Of all, such as "Q4_K".
};

struct CheckpointQuantization {
  CheckpointFormat format = CheckpointFormat::kPlain;
  // These are for the formats with groups.
  int bits = 4;              // 4, or 8 with kPackQuantized and kGptq: such matrices are dequantized when they are read.
  int group = 0;             // Columns that share a scale: 32, 64 or a multiple of 128; 0: all of a row.
  bool is_symmetric = true;  // All zero points are in the middle: 8, or 128 with 8 bits.
  bool needs_order = false;  // Groups have columns in an order that the file must tell (desc_act, actorder).
  int zeros_stored_less = 0;  // GPTQ has subtracted this from zero points of weights that are not symmetric.
  Fp8Block fp8_block = {};    // For kFp8.
  bool keeps_fp8 = false;     // With kFp8, matrices of layers stay FP8 and do not become bfloat16 when they are read.
  // ReadModelConfig counts them, for a device that multiplies all numbers of the checkpoint as they are stored.
  PlainStacks plain_stacks = {};
  // Counted in the same way, in any format.
  StoredBlocks blocks = {};

  // Returns how such matrices are multiplied.
  Quantization width() const;
};

// Returns a description for fingerprints, such as "gptq 128", or "fp8 0 x 0" for FP8 without blocks. It stays what it
// is, because workers of different versions that have the same model must have the same fingerprint.
std::string Summary(const CheckpointQuantization& quantization);

// Returns a description for a person, such as "GPTQ of 4 bits in groups of 128 columns".
std::string Description(const CheckpointQuantization& quantization);

// Returns how a device reads such a checkpoint when --quantize rounds it to `rounding`: matrices that the device cannot
// multiply, and those that are rounded, become floating-point numbers where that is possible. Returns INVALID_ARGUMENT
// when weights would be rounded that are quantized and stay so.
absl::StatusOr<CheckpointQuantization> ReadAs(const CheckpointQuantization& stored, Quantization rounding,
                                              bool multiplies_quantized, bool multiplies_fp8);

// Reads the field quantization_config of config.json. `root` reads the whole file. Without the field, the result is
// kPlain. The error for a kind that is not supported names the field, its value and what is supported.
//
// The lists of layers in the file (`targets`, `ignore`, `modules_to_not_convert`) are not read, because the tensors
// tell whether a layer is quantized.
absl::StatusOr<CheckpointQuantization> ReadQuantizationConfig(const JsonFields& root);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_QUANTIZATION_CONFIG_H_
