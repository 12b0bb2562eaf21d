// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_MAKE_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CUDA_MAKE_KERNEL_TABLE_H_

#include "kernels/cuda/attention_decode.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/attention_prefill_sm90.h"
#include "kernels/cuda/copy_blocks.h"
#include "kernels/cuda/dequantize.h"
#include "kernels/cuda/expert_product.h"
#include "kernels/cuda/kernel_table.h"
#include "kernels/cuda/quantized_product.h"
#include "kernels/cuda/rank_kernels.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/rope_append.h"
#include "kernels/cuda/round_rows.h"
#include "kernels/cuda/rounded_product.h"
#include "kernels/cuda/row_kernels.h"
#include "kernels/cuda/sampling_kernel.h"
#include "kernels/cuda/scale_sums.h"
#include "kernels/cuda/split_sum.h"

namespace quire::cuda {

// Entry::Of<K>() returns the address by which the device starts kernel class K.
template <typename Entry, typename K>
Kernel<typename K::Args> MakeKernel() {
  return {.entry = Entry::template Of<K>(), .num_threads = K::kThreads, .shared_bytes = K::kSharedBytes};
}

// Threads of the block that samples a row, which may have more than 100,000 tokens. 1024 would leave too few registers.
constexpr int kSamplingThreads = 512;

template <typename Entry, typename Element, typename Values>
QuantizedKernels MakeQuantizedKernels() {
  return {.products = {MakeKernel<Entry, QuantizedProductKernel<Element, Values, 1>>(),
                       MakeKernel<Entry, QuantizedProductKernel<Element, Values, 2>>(),
                       MakeKernel<Entry, QuantizedProductKernel<Element, Values, 4>>(),
                       MakeKernel<Entry, QuantizedProductKernel<Element, Values, 8>>()},
          .dequantize = MakeKernel<Entry, DequantizeKernel<Element, Values>>()};
}

template <typename Entry, typename Element, typename Numbers>
RoundedProductKernels MakeRoundedProductKernels() {
  Kernel<RoundRowsArgs> round_rows;
  Kernel<RoundGroupsArgs> round_groups;
  if constexpr (Numbers::kHasBlockScales) {
    round_groups = MakeKernel<Entry, RoundGroupsKernel<Element, Numbers>>();
  } else {
    round_rows = MakeKernel<Entry, RoundRowsKernel<Element, Numbers>>();
  }
  return {.round_rows = round_rows,
          .round_groups = round_groups,
          .products = {MakeKernel<Entry, RoundedProductKernel<Element, Numbers, 1>>(),
                       MakeKernel<Entry, RoundedProductKernel<Element, Numbers, 2>>(),
                       MakeKernel<Entry, RoundedProductKernel<Element, Numbers, 4>>(),
                       MakeKernel<Entry, RoundedProductKernel<Element, Numbers, 8>>()},
          .scale_sums = MakeKernel<Entry, ScaleSumsKernel<Element, Numbers>>()};
}

// Returns the kernel for long items that only compute capability 9.0 has, for blocks of at least 16 tokens; `entry` is
// null for heads that have none.
template <typename Entry, typename Element, int kHeadDim>
Kernel<AttentionArgs> MakePrefillSm90() {
  if constexpr (kHeadDim == 64 || kHeadDim == 128) {
    return MakeKernel<Entry, AttentionPrefillSm90<Element, kHeadDim>>();
  } else {
    return {};
  }
}

// Changes the table to one for K and V of int8.
template <typename Entry, typename Element, int kHeadDim, int kDecodeStages, int kPrefillStages, bool kIsSm90>
KernelTable WithInt8Kv(KernelTable table) {
  using Int8 = Int8Kv<Element>;
  table.attention_decode = MakeKernel<Entry, AttentionDecode<Int8, UnitSize::kFull, kHeadDim, kDecodeStages>>();
  table.attention_prefill = MakeKernel<Entry, AttentionPrefill<Int8, UnitSize::kFull, kHeadDim, kPrefillStages>>();
  if constexpr (kIsSm90) table.attention_prefill_sm90 = MakePrefillSm90<Entry, Int8, kHeadDim>();
  table.rope_append = MakeKernel<Entry, RopeAppendKernel<Int8, UnitSize::kFull, kHeadDim>>();
  return table;
}

// Returns the kernels with these parameters. The table is for compute capability 9.0 if kIsSm90.
template <typename Entry, typename Element, UnitSize kSize, int kHeadDim, bool kIsSm90 = false>
KernelTable MakeKernelTable() {
  constexpr int kDecodeStages = 3, kPrefillStages = 2;
  Kernel<AttentionArgs> prefill_sm90;
  if constexpr (kIsSm90 && kSize == UnitSize::kFull) prefill_sm90 = MakePrefillSm90<Entry, Element, kHeadDim>();
  RoundedProductKernels rounded_fp8, rounded_fp8_blocks;
  if constexpr (kIsSm90) {
    rounded_fp8 = MakeRoundedProductKernels<Entry, Element, Fp8Numbers>();
    rounded_fp8_blocks = MakeRoundedProductKernels<Entry, Element, Fp8BlockNumbers>();
  }
  KernelTable table = {
      .attention_decode = MakeKernel<Entry, AttentionDecode<Element, kSize, kHeadDim, kDecodeStages>>(),
      .attention_prefill = MakeKernel<Entry, AttentionPrefill<Element, kSize, kHeadDim, kPrefillStages>>(),
      .attention_prefill_sm90 = prefill_sm90,
      .attention_merge = MakeKernel<Entry, AttentionMergeKernel<Element, kHeadDim>>(),
      .rope_append = MakeKernel<Entry, RopeAppendKernel<Element, kSize, kHeadDim>>(),
      .rms_norm = MakeKernel<Entry, RmsNormKernel<Element>>(),
      .silu_mul = MakeKernel<Entry, GatedKernel<Element, Silu>>(),
      .gelu_mul = MakeKernel<Entry, GatedKernel<Element, GeluTanh>>(),
      .activate = MakeKernel<Entry, ActivateKernel<Element>>(),
      .add_bias = MakeKernel<Entry, AddBiasKernel<Element>>(),
      .scale_rows = MakeKernel<Entry, ScaleRowsKernel<Element>>(),
      .cap_logits = MakeKernel<Entry, CapLogitsKernel>(),
      .gather_rows = MakeKernel<Entry, GatherRowsKernel>(),
      .gather_scaled_rows = MakeKernel<Entry, GatherScaledRowsKernel<Element>>(),
      .copy_blocks = MakeKernel<Entry, CopyBlocksKernel>(),
      .route = MakeKernel<Entry, RouteKernel>(),
      .expert_plan = MakeKernel<Entry, ExpertPlanKernel>(),
      .expert_product = MakeKernel<Entry, ExpertProductKernel<Element>>(),
      .expert_sum = MakeKernel<Entry, ExpertSumKernel<Element>>(),
      .add_parts = MakeKernel<Entry, AddPartsKernel<Element>>(),
      .join_columns = MakeKernel<Entry, JoinColumnsKernel>(),
      .sampling = MakeKernel<Entry, SamplingKernel<kSamplingThreads>>(),
      .int4 = MakeQuantizedKernels<Entry, Element, Int4Values>(),
      .int8 = MakeQuantizedKernels<Entry, Element, Int8Values>(),
      .fp8 = MakeQuantizedKernels<Entry, Element, Fp8Values>(),
      .rounded_int8 = MakeRoundedProductKernels<Entry, Element, Int8Numbers>(),
      .rounded_fp8 = rounded_fp8,
      .rounded_fp8_blocks = rounded_fp8_blocks,
      .split_sum = MakeKernel<Entry, SplitSumKernel<Element>>(),
      .gather_columns = MakeKernel<Entry, GatherColumnsKernel>()};
  if constexpr (kSize == UnitSize::kFull && kHeadDim <= kMostInt8HeadDim) {
    static const KernelTable int8_kv =
        WithInt8Kv<Entry, Element, kHeadDim, kDecodeStages, kPrefillStages, kIsSm90>(table);
    table.int8_kv = &int8_kv;
  }
  return table;
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_MAKE_KERNEL_TABLE_H_
