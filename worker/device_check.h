// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_DEVICE_CHECK_H_
#define QUIRE_WORKER_DEVICE_CHECK_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/kv_layout.h"
#include "kernels/optional_part.h"
#include "worker/model/config.h"
#include "worker/model/quantize.h"

namespace quire {

// A start decides and checks this about the device before it reads weights. --explain-memory does the same, so that it
// refuses the same models with the same words. Errors are FAILED_PRECONDITION, unless another code is named.

// Returns the precision that config.json names for the weights.
KvType KvTypeOf(const ModelConfig& config);

// Returns the type in which a CPU holds the matrices of the layers that are not quantized. FP8 becomes bfloat16.
DataType HostWeightType(const ModelConfig& config);

// Returns the type in which a GPU computes: that of --kv-type if it has 16 bits, otherwise that of the weights.
DataType GpuElementFor(const ModelConfig& config, std::optional<KvType> kv_type);

KvLayout LayoutOf(const ModelConfig& config, int block_size, KvType type);

// Makes a backend with the best kernels of this machine, or with `kernels`.
std::unique_ptr<Backend> MakeHostBackend(int num_threads, std::optional<cpu::Isa> kernels);

// Returns INVALID_ARGUMENT when --long-context is set for a model that has one context only.
absl::Status CheckLongContext(const ModelConfig& config, bool long_context);

// Checks the sizes of the model at `path`, and that a GPU has the parts of the operations that the model needs with
// weights that are rounded in this way. `has` tells which parts a GPU has, and `device` is the value of --device.
absl::Status CheckShapesForGpu(const std::string& path, const ModelConfig& config, const WeightRounding& rounding,
                               absl::FunctionRef<bool(OptionalPart)> has, absl::string_view device);

// Makes the error of a device that calls itself `description` from its answer about the layout of K and V.
absl::Status CanRun(absl::string_view description, const BackendStatus& layout);

}  // namespace quire

#endif  // QUIRE_WORKER_DEVICE_CHECK_H_
