// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_

#include <cstddef>
#include <iterator>

namespace quire::cuda {

struct ActivateKernelArgs;
struct AddBiasArgs;
struct AddPartsKernelArgs;
struct AttentionArgs;
struct CapLogitsArgs;
struct CopyBlocksArgs;
struct DequantizeArgs;
struct ExpertPlanArgs;
struct ExpertProductArgs;
struct ExpertSumArgs;
struct GatedArgs;
struct GatherColumnsArgs;
struct GatherRowsArgs;
struct JoinColumnsArgs;
struct RoundedProductArgs;
struct QuantizedProductArgs;
struct RmsNormKernelArgs;
struct RopeAppendKernelArgs;
struct RoundGroupsArgs;
struct RoundRowsArgs;
struct RouteKernelArgs;
struct SamplingKernelArgs;
struct ScaleRowsArgs;
struct ScaleSumsArgs;
struct SplitSumArgs;

// A kernel in the form in which its device starts it: the address of a __global__ function, or of a CPU function that
// the emulator calls.
template <typename Args>
struct Kernel {
  const void* entry = nullptr;
  int num_threads = 0;  // Threads per block.
  size_t shared_bytes = 0;
};

// The kernels for quantized weights of one format, by which rows of 16 bits are multiplied.
struct QuantizedKernels {
  static constexpr int kTokens[] = {8, 16, 32, 64};  // The most tokens that each product takes.
  static constexpr int kMostJoinedTokens = 16;       // The most tokens of products that add their own splits.

  // Returns the index of the product for `num_tokens` tokens. The last one takes any number of tokens, in blocks.
  static constexpr int ProductFor(int num_tokens) {
    int index = 0;
    while (index + 1 < int(std::size(kTokens)) && kTokens[index] < num_tokens) ++index;
    return index;
  }

  Kernel<QuantizedProductArgs> products[4];
  Kernel<DequantizeArgs> dequantize;
};

// The kernels for products of rounded rows by weights of int8 or FP8. The number of products is the same as above, and
// the same products add their splits. Rows have one scale, or one for each 128 columns.
struct RoundedProductKernels {
  Kernel<RoundRowsArgs> round_rows;      // `entry` is null with scales of columns.
  Kernel<RoundGroupsArgs> round_groups;  // `entry` is null with one scale for each row.
  Kernel<RoundedProductArgs> products[4];
  Kernel<ScaleSumsArgs> scale_sums;

  bool exist() const { return scale_sums.entry != nullptr; }
};

// The largest heads with K and V of int8. With larger ones, the registers do not suffice for queries, sums and the
// conversion of K and V.
constexpr int kMostInt8HeadDim = 128;

// All kernels for one element type, head size and kind of KV block: of at least 16 tokens, or of fewer.
struct KernelTable {
  Kernel<AttentionArgs> attention_decode;
  Kernel<AttentionArgs> attention_prefill;
  Kernel<AttentionArgs> attention_prefill_sm90;  // `entry` is null for devices and heads without it.
  Kernel<AttentionArgs> attention_merge;
  Kernel<RopeAppendKernelArgs> rope_append;
  Kernel<RmsNormKernelArgs> rms_norm;
  Kernel<GatedArgs> silu_mul;
  Kernel<GatedArgs> gelu_mul;
  Kernel<ActivateKernelArgs> activate;
  Kernel<AddBiasArgs> add_bias;
  Kernel<ScaleRowsArgs> scale_rows;
  Kernel<CapLogitsArgs> cap_logits;
  Kernel<GatherRowsArgs> gather_rows;
  Kernel<GatherRowsArgs> gather_scaled_rows;
  Kernel<CopyBlocksArgs> copy_blocks;
  Kernel<RouteKernelArgs> route;
  Kernel<ExpertPlanArgs> expert_plan;
  Kernel<ExpertProductArgs> expert_product;
  Kernel<ExpertSumArgs> expert_sum;
  Kernel<AddPartsKernelArgs> add_parts;
  Kernel<JoinColumnsArgs> join_columns;
  Kernel<SamplingKernelArgs> sampling;
  QuantizedKernels int4, int8, fp8;
  RoundedProductKernels rounded_int8;
  RoundedProductKernels rounded_fp8;         // The entries are null for devices without it.
  RoundedProductKernels rounded_fp8_blocks;  // The same for weights that have blocks of 128 x 128.
  Kernel<SplitSumArgs> split_sum;
  Kernel<GatherColumnsArgs> gather_columns;
  // The table for K and V of int8 in the same blocks; only its kernels of attention and rope_append differ. It is null
  // for small blocks and heads of more than 128 dimensions, and in such a table.
  const KernelTable* int8_kv = nullptr;

  // Calls visit(kernel) for every kernel that the table has.
  template <typename F>
  void ForEach(const F& visit) const {
    visit(attention_decode);
    visit(attention_prefill);
    if (attention_prefill_sm90.entry != nullptr) visit(attention_prefill_sm90);
    visit(attention_merge);
    visit(rope_append);
    visit(rms_norm);
    visit(silu_mul);
    visit(gelu_mul);
    visit(activate);
    visit(add_bias);
    visit(scale_rows);
    visit(cap_logits);
    visit(gather_rows);
    visit(gather_scaled_rows);
    visit(copy_blocks);
    visit(route);
    visit(expert_plan);
    visit(expert_product);
    visit(expert_sum);
    visit(add_parts);
    visit(join_columns);
    visit(sampling);
    for (const QuantizedKernels* kernels : {&int4, &int8, &fp8}) {
      for (const auto& product : kernels->products) visit(product);
      visit(kernels->dequantize);
    }
    for (const RoundedProductKernels* kernels : {&rounded_int8, &rounded_fp8, &rounded_fp8_blocks}) {
      if (!kernels->exist()) continue;
      if (kernels->round_rows.entry != nullptr) visit(kernels->round_rows);
      if (kernels->round_groups.entry != nullptr) visit(kernels->round_groups);
      for (const auto& product : kernels->products) visit(product);
      visit(kernels->scale_sums);
    }
    visit(split_sum);
    visit(gather_columns);
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_KERNEL_TABLE_H_
