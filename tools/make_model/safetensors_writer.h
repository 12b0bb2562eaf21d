// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TOOLS_MAKE_MODEL_SAFETENSORS_WRITER_H_
#define QUIRE_TOOLS_MAKE_MODEL_SAFETENSORS_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/types.h"
#include "tools/make_model/model_shape.h"

namespace quire::make_model {

// Writes all tensors as random numbers of `type` to a .safetensors file, a megabyte at a time. A file that could not be
// finished is removed.
absl::Status WriteRandomTensors(const std::vector<TensorSpec>& specs, DataType type, uint64_t seed,
                                const std::string& path);

}  // namespace quire::make_model

#endif  // QUIRE_TOOLS_MAKE_MODEL_SAFETENSORS_WRITER_H_
