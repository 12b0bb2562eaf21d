#ifndef QUIRE_KERNELS_CUDA_COMPILED_TABLE_H_
#define QUIRE_KERNELS_CUDA_COMPILED_TABLE_H_

#include "kernels/cuda/make_kernel_table.h"

namespace quire::cuda {

// Limits the registers so that at least two blocks fit on a multiprocessor, except for the largest blocks.
template <typename K>
__global__ void __launch_bounds__(K::kThreads, K::kThreads <= 256 ? 2 : 1)
    RunKernel(const __grid_constant__ typename K::Args args) {
  K::Run(args);
}

struct CompiledEntry {
  template <typename K>
  static const void* Of() {
    return reinterpret_cast<const void*>(&RunKernel<K>);
  }
};

// This kernel is the same in all tables, so kernels_sampling.cu compiles it once.
const void* SamplingEntry();
template <>
inline const void* CompiledEntry::Of<SamplingKernel<kSamplingThreads>>() {
  return SamplingEntry();
}

template <typename Element, int kHeadDim>
const KernelTable* CompiledTable(int block_size) {
  static const KernelTable full = MakeKernelTable<CompiledEntry, Element, UnitSize::kFull, kHeadDim>();
  static const KernelTable small = MakeKernelTable<CompiledEntry, Element, UnitSize::kSmall, kHeadDim>();
  return block_size < KvLayout::kUnitTokens ? &small : &full;
}

// Returns the table for heads of that size, if the size is one of kHeadDims.
template <typename Element, int... kHeadDims>
const KernelTable* FindAmong(int head_dim, int block_size) {
  const KernelTable* table = nullptr;
  ((head_dim == kHeadDims ? void(table = CompiledTable<Element, kHeadDims>(block_size)) : void()), ...);
  return table;
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_COMPILED_TABLE_H_
