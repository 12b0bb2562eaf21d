// SPDX-License-Identifier: Apache-2.0

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

// Kernels that are compiled apart from the tables:
//   - those that only compute capability 9.0 can run, in kernels_sm90.cu and kernels_fp8_sm90.cu,
//   - those for quantized weights, which are the same in all tables of an element, in kernels_quantized_bf16.cu and
//     kernels_quantized_f16.cu,
//   - those for K and V of int8, in kernels_int8_kv_bf16.cu and kernels_int8_kv_f16.cu.
template <typename K>
constexpr bool kIsApart = false;
template <typename Element, int kHeadDim>
constexpr bool kIsApart<AttentionPrefillSm90<Element, kHeadDim>> = true;
template <typename Element, typename Values, int kTokenTiles>
constexpr bool kIsApart<QuantizedProductKernel<Element, Values, kTokenTiles>> = true;
template <typename Element, typename Values>
constexpr bool kIsApart<DequantizeKernel<Element, Values>> = true;
template <typename Element>
constexpr bool kIsApart<SplitSumKernel<Element>> = true;
template <typename Element, typename Numbers>
constexpr bool kIsApart<RoundRowsKernel<Element, Numbers>> = true;
template <typename Element, typename Numbers>
constexpr bool kIsApart<RoundGroupsKernel<Element, Numbers>> = true;
template <typename Element, typename Numbers, int kTokenTiles>
constexpr bool kIsApart<RoundedProductKernel<Element, Numbers, kTokenTiles>> = true;
template <typename Element, typename Numbers>
constexpr bool kIsApart<ScaleSumsKernel<Element, Numbers>> = true;
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
constexpr bool kIsApart<AttentionDecode<Int8Kv<Element>, kSize, kHeadDim, kStages>> = true;
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
constexpr bool kIsApart<AttentionPrefill<Int8Kv<Element>, kSize, kHeadDim, kStages>> = true;
template <typename Element, UnitSize kSize, int kHeadDim>
constexpr bool kIsApart<RopeAppendKernel<Int8Kv<Element>, kSize, kHeadDim>> = true;
// Returns the entry of such a kernel. entry_apart.h defines it.
template <typename K>
const void* EntryApart();

struct CompiledEntry {
  template <typename K>
  static const void* Of() {
    if constexpr (kIsApart<K>) {
      return EntryApart<K>();
    } else {
      return reinterpret_cast<const void*>(&RunKernel<K>);
    }
  }
};

// This kernel is the same in all tables, so kernels_sampling.cu compiles it once.
const void* SamplingEntry();
template <>
inline const void* CompiledEntry::Of<SamplingKernel<kSamplingThreads>>() {
  return SamplingEntry();
}

template <typename Element, int kHeadDim>
const KernelTable* CompiledTable(int block_size, bool is_sm90) {
  static const KernelTable full = MakeKernelTable<CompiledEntry, Element, UnitSize::kFull, kHeadDim>();
  static const KernelTable small = MakeKernelTable<CompiledEntry, Element, UnitSize::kSmall, kHeadDim>();
  static const KernelTable full_sm90 = MakeKernelTable<CompiledEntry, Element, UnitSize::kFull, kHeadDim, true>();
  return block_size < KvLayout::kUnitTokens ? &small : is_sm90 ? &full_sm90 : &full;
}

// Returns the table for heads of that size, if the size is one of kHeadDims.
template <typename Element, int... kHeadDims>
const KernelTable* FindAmong(int head_dim, int block_size, bool is_sm90) {
  const KernelTable* table = nullptr;
  ((head_dim == kHeadDims ? void(table = CompiledTable<Element, kHeadDims>(block_size, is_sm90)) : void()), ...);
  return table;
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_COMPILED_TABLE_H_
