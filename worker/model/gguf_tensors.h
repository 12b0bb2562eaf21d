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
#include "worker/model/gguf_config.h"
#include "worker/model/tensor.h"

namespace quire {

// The type of the numbers that quantized tensors of GGUF files become. Its range equals float32's, many processors
// multiply it faster than float16, and beside the error of the quantization its rounding hardly counts: docs/serving.md
// has the measurement.
constexpr DataType kDequantizedType = DataType::kBFloat16;

// Returns the tensors of a GGUF file under the names of Hugging Face: "blk.0.attn_q.weight" is
// "model.layers.0.self_attn.q_proj.weight". A tensor with the matrices of all experts becomes one tensor for each
// expert. The frequencies of the rotary embedding are left out, because GgufConfigJson reads them. A tensor that Quire
// does not use would change the computation, so it is refused with its name.
absl::StatusOr<std::vector<Tensor>> GgufTensors(const GgufContents& contents);

// Returns the name in a GGUF file of the tensor with a name of Hugging Face, or nothing for a name that none of the
// family has.
std::optional<std::string> GgufTensorName(std::string_view hugging_face, const GgufNaming& naming);

// Returns whether the elements are numbers of a quantized type of GGUF.
bool IsGgufQuantized(const Tensor& tensor);

// Returns a copy with numbers of kDequantizedType. REQUIRES: IsGgufQuantized(tensor).
OwnedTensor DequantizeGgufTensor(const Tensor& tensor);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_GGUF_TENSORS_H_
