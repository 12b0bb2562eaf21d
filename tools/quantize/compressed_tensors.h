// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_QUANTIZE_COMPRESSED_TENSORS_H_
#define QUIRE_TOOLS_QUANTIZE_COMPRESSED_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "worker/model/quantize.h"
#include "worker/model/safetensors_header.h"

namespace quire::quantize {

// How a checkpoint of compressed-tensors stores quantized matrices. kInt8 is its format int-quantized under the preset
// W8A8, and kInt4 is its format pack-quantized, with zero points.
struct Layout {
  Quantization width;  // kInt8 or kInt4.
  int group = 0;       // Of kInt4: columns that share a scale in the file. It divides kMaxInt4Group.
  // Names, without ".weight", of the matrices that are not quantized.
  std::vector<std::string> plain_modules = {"lm_head"};
};

// Returns the field quantization_config of config.json.
nlohmann::ordered_json QuantizationConfig(const Layout& layout);

// Returns the tensors that store a matrix [rows, cols] with the name `weight`, which ends with ".weight". REQUIRES: the
// group divides cols.
std::vector<TensorEntry> EntriesOf(const std::string& weight, int64_t rows, int64_t cols, const Layout& layout);

// Returns the bytes of these tensors, in the same order. REQUIRES: QuantizeToInt8 or QuantizeToInt4 made the matrix,
// according to the width.
std::vector<std::string> BytesOf(const QuantizedMatrix& matrix, const Layout& layout);

}  // namespace quire::quantize

#endif  // QUIRE_TOOLS_QUANTIZE_COMPRESSED_TENSORS_H_
