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

// Kernels that only compute capability 9.0 can run. kernels_sm90.cu compiles them.
template <typename K>
constexpr bool kIsForSm90 = false;
template <typename Element, int kHeadDim>
constexpr bool kIsForSm90<AttentionPrefillSm90<Element, kHeadDim>> = true;
template <typename K>
const void* Sm90Entry();

// Kernels for quantized weights are the same in all tables of an element. kernels_quantized_bf16.cu and
// kernels_quantized_f16.cu compile them once.
template <typename K>
constexpr bool kIsForQuantized = false;
template <typename Element, typename Values, int kTokenTiles>
constexpr bool kIsForQuantized<QuantizedProductKernel<Element, Values, kTokenTiles>> = true;
template <typename Element, typename Values>
constexpr bool kIsForQuantized<DequantizeKernel<Element, Values>> = true;
template <typename Element>
constexpr bool kIsForQuantized<SplitSumKernel<Element>> = true;
template <typename K>
const void* QuantizedEntry();

// Kernels for K and V of int8. kernels_int8_kv_bf16.cu and kernels_int8_kv_f16.cu compile them.
template <typename K>
constexpr bool kIsForInt8Kv = false;
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
constexpr bool kIsForInt8Kv<AttentionDecode<Int8Kv<Element>, kSize, kHeadDim, kStages>> = true;
template <typename Element, UnitSize kSize, int kHeadDim, int kStages>
constexpr bool kIsForInt8Kv<AttentionPrefill<Int8Kv<Element>, kSize, kHeadDim, kStages>> = true;
template <typename Element, UnitSize kSize, int kHeadDim>
constexpr bool kIsForInt8Kv<RopeAppendKernel<Int8Kv<Element>, kSize, kHeadDim>> = true;
template <typename K>
const void* Int8KvEntry();

struct CompiledEntry {
  template <typename K>
  static const void* Of() {
    if constexpr (kIsForSm90<K>) {
      return Sm90Entry<K>();
    } else if constexpr (kIsForQuantized<K>) {
      return QuantizedEntry<K>();
    } else if constexpr (kIsForInt8Kv<K>) {
      return Int8KvEntry<K>();
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
