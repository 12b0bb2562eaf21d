// SPDX-License-Identifier: Apache-2.0

#include "kernels/python/gpu.h"

namespace quire::gpu {

PagedAttentionStatus Forward(const PagedAttentionArgs& /*args*/, int device, void* /*stream*/) {
  return PagedAttentionStatus::Invalid("query is on GPU " + std::to_string(device) +
                                       ", must be on the CPU: this module was built where there was no nvcc");
}

void* Allocate(int /*device*/, size_t /*bytes*/) {
  return nullptr;
}

void Free(int /*device*/, void* /*memory*/) {}

}  // namespace quire::gpu
