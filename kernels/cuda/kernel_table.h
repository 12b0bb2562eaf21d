#ifndef QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_

#include <cstddef>

namespace quire::cuda {

struct AddBiasArgs;
struct AttentionArgs;
struct CopyBlocksArgs;
struct GatherRowsArgs;
struct RmsNormKernelArgs;
struct RopeAppendKernelArgs;
struct SamplingKernelArgs;
struct SiluMulArgs;

// A kernel in the form that its device starts: the address of a __global__ function, or of a function of the CPU that
// the emulator calls.
template <typename Args>
struct Kernel {
  const void* entry = nullptr;
  int num_threads = 0;  // Of a block.
  size_t shared_bytes = 0;
};

// All kernels for one type of elements, size of heads and kind of blocks.
struct KernelTable {
  Kernel<AttentionArgs> attention_decode;
  Kernel<AttentionArgs> attention_prefill;
  Kernel<AttentionArgs> attention_merge;
  Kernel<RopeAppendKernelArgs> rope_append;
  Kernel<RmsNormKernelArgs> rms_norm;
  Kernel<SiluMulArgs> silu_mul;
  Kernel<AddBiasArgs> add_bias;
  Kernel<GatherRowsArgs> gather_rows;
  Kernel<CopyBlocksArgs> copy_blocks;
  Kernel<SamplingKernelArgs> sampling;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_
