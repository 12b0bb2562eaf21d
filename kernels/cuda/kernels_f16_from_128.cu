// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/compiled_kernels.h"
#include "kernels/cuda/compiled_table.h"

namespace quire::cuda {

const KernelTable* FindF16KernelsFrom128(int head_dim, int block_size, bool is_sm90) {
  return FindAmong<F16, 128, 256>(head_dim, block_size, is_sm90);
}

}  // namespace quire::cuda
