// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/compiled_kernels.h"

#include "kernels/kv_layout.h"

namespace quire::cuda {

const KernelTable* FindCompiledKernels(DataType element, int head_dim, int block_size, bool is_sm90) {
  const bool is_small = block_size == 1 || block_size == 2 || block_size == 4 || block_size == 8;
  if (!is_small && (block_size <= 0 || block_size % KvLayout::kUnitTokens != 0)) return nullptr;
  switch (element) {
    case DataType::kBFloat16:
      return head_dim <= 96 ? FindBf16KernelsTo96(head_dim, block_size, is_sm90)
                            : FindBf16KernelsFrom128(head_dim, block_size, is_sm90);
    case DataType::kFloat16:
      return head_dim <= 96 ? FindF16KernelsTo96(head_dim, block_size, is_sm90)
                            : FindF16KernelsFrom128(head_dim, block_size, is_sm90);
    default:
      return nullptr;
  }
}

}  // namespace quire::cuda
