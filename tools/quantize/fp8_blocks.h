// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_QUANTIZE_FP8_BLOCKS_H_
#define QUIRE_TOOLS_QUANTIZE_FP8_BLOCKS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/model/safetensors_header.h"

namespace quire::quantize {

// How a checkpoint in the format of DeepSeek stores a matrix: numbers of FP8, and a scale for each block of 128 x 128,
// by which they are multiplied. Transformers and vLLM call the format fp8.

// Returns the field quantization_config of config.json. `plain_modules` are the names, without ".weight", of the
// matrices that are not quantized.
nlohmann::ordered_json Fp8QuantizationConfig(const std::vector<std::string>& plain_modules);

// Returns the tensors that store a matrix [rows, cols] with the name `weight`.
std::vector<TensorEntry> Fp8EntriesOf(const std::string& weight, int64_t rows, int64_t cols);

// Rounds a matrix [rows, cols] and returns the bytes of these tensors, in the same order. The scale of a block is its
// largest magnitude divided by the largest of FP8, and ties round to even. REQUIRES: all weights are finite.
std::vector<std::string> Fp8BytesOf(const std::vector<float>& weights, int64_t rows, int64_t cols);

}  // namespace quire::quantize

#endif  // QUIRE_TOOLS_QUANTIZE_FP8_BLOCKS_H_
