// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_GGUF_TENSORS_H_
#define QUIRE_WORKER_MODEL_GGUF_TENSORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/types.h"
#include "worker/model/gguf.h"
#include "worker/model/tensor.h"

namespace quire {

// The type of the numbers that quantized tensors of GGUF files become. Its range equals float32's, many processors
// multiply it faster than float16, and beside the error of the quantization its rounding hardly counts: docs/serving.md
// has the measurement.
constexpr DataType kDequantizedType = DataType::kBFloat16;

// Returns the tensors of a GGUF file under the names of Hugging Face: "blk.0.attn_q.weight" is
// "model.layers.0.self_attn.q_proj.weight". Of the architecture llama, the rows of Q and K are marked as interleaved.
// The frequencies of the rotary embedding are left out, because GgufConfigJson reads them. A tensor that Quire does not
// use would change the computation, so it is refused with its name.
absl::StatusOr<std::vector<Tensor>> GgufTensors(const GgufContents& contents);

// Returns the name in a GGUF file of the tensor with a name of Hugging Face, or nothing for a name that none has.
std::optional<std::string> GgufTensorName(std::string_view hugging_face);

// Returns whether the tensor of a GGUF file has to be converted before it is used: its numbers are quantized, or its
// rows have another order than in Hugging Face.
bool NeedsConversion(const Tensor& tensor);

// Returns whether the elements are numbers of a quantized type of GGUF.
bool IsGgufQuantized(const Tensor& tensor);

// Returns the place of a row of Hugging Face in the file. llama.cpp stores the rows of a head so that the two rows of a
// rotated pair are neighbours: (0, half, 1, half + 1, ...). `rows` is the number of rows of the tensor.
int64_t RowInFile(int64_t row, int64_t rows, int interleaved_heads);

// Converts a tensor: quantized numbers become kDequantizedType, others keep their type, and the rows get the order of
// Hugging Face. REQUIRES: NeedsConversion(tensor).
OwnedTensor ConvertGgufTensor(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_TENSORS_H_
