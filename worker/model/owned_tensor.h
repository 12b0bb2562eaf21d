// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_OWNED_TENSOR_H_
#define QUIRE_WORKER_MODEL_OWNED_TENSOR_H_

#include <memory>

#include "worker/model/safetensors.h"

namespace quire {

// A tensor with its own memory.
struct OwnedTensor {
  Tensor tensor;  // Its bytes are in `bytes`.
  std::unique_ptr<char[]> bytes;
};

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_OWNED_TENSOR_H_
