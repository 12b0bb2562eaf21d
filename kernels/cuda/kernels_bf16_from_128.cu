#include "kernels/cuda/compiled_kernels.h"
#include "kernels/cuda/compiled_table.h"

namespace quire::cuda {

const KernelTable* FindBf16KernelsFrom128(int head_dim, int block_size) {
  return FindAmong<Bf16, 128, 256>(head_dim, block_size);
}

}  // namespace quire::cuda
