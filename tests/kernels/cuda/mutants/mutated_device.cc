// SPDX-License-Identifier: Apache-2.0

// The emulated device of a mutant. It is compiled from headers one of which has a planted bug, and it has few kernels:
// heads of 64 and, for the narrow last panel, 80.

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

template <typename Element, int kHeadDim>
KernelTable RowKernels() {
  KernelTable table;
  table.rope_append = MakeKernel<EmulatedEntry, RopeAppendKernel<Element, UnitSize::kFull, kHeadDim>>();
  table.rms_norm = MakeKernel<EmulatedEntry, RmsNormKernel<Element>>();
  table.silu_mul = MakeKernel<EmulatedEntry, GatedKernel<Element, Silu>>();
  table.gelu_mul = MakeKernel<EmulatedEntry, GatedKernel<Element, GeluTanh>>();
  table.activate = MakeKernel<EmulatedEntry, ActivateKernel<Element>>();
  table.add_bias = MakeKernel<EmulatedEntry, AddBiasKernel<Element>>();
  table.scale_rows = MakeKernel<EmulatedEntry, ScaleRowsKernel<Element>>();
  table.cap_logits = MakeKernel<EmulatedEntry, CapLogitsKernel>();
  table.gather_rows = MakeKernel<EmulatedEntry, GatherRowsKernel>();
  table.gather_scaled_rows = MakeKernel<EmulatedEntry, GatherScaledRowsKernel<Element>>();
  table.copy_blocks = MakeKernel<EmulatedEntry, CopyBlocksKernel>();
  table.route = MakeKernel<EmulatedEntry, RouteKernel>();
  table.expert_plan = MakeKernel<EmulatedEntry, ExpertPlanKernel>();
  table.expert_product = MakeKernel<EmulatedEntry, ExpertProductKernel<Element>>();
  table.expert_sum = MakeKernel<EmulatedEntry, ExpertSumKernel<Element>>();
  table.add_parts = MakeKernel<EmulatedEntry, AddPartsKernel<Element>>();
  table.join_columns = MakeKernel<EmulatedEntry, JoinColumnsKernel>();
  return table;
}

// Only mutants of kernels for K and V of int8 compile these kernels.
#if defined(QUIRE_MUTANT_INT8_KV)
constexpr bool kHasInt8Kv = true;
#else
constexpr bool kHasInt8Kv = false;
#endif

template <UnitSize kSize, int kHeadDim>
KernelTable Attention() {
  KernelTable table;
  table.attention_decode = MakeKernel<EmulatedEntry, AttentionDecode<Bf16, kSize, kHeadDim, 3>>();
  table.attention_prefill = MakeKernel<EmulatedEntry, AttentionPrefill<Bf16, kSize, kHeadDim, 2>>();
  table.attention_merge = MakeKernel<EmulatedEntry, AttentionMergeKernel<Bf16, kHeadDim>>();
  table.rope_append = MakeKernel<EmulatedEntry, RopeAppendKernel<Bf16, kSize, kHeadDim>>();
  if constexpr (kHasInt8Kv && kSize == UnitSize::kFull) {
    static const KernelTable int8_kv = WithInt8Kv<EmulatedEntry, Bf16, kHeadDim, 3, 2, /*kIsSm90=*/false>(table);
    table.int8_kv = &int8_kv;
  }
  return table;
}

class MutatedDevice : public EmulatedDevice {
 public:
  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override {
    static const KernelTable f16 = RowKernels<F16, 128>(), bf16 = RowKernels<Bf16, 128>();
    static const KernelTable full_64 = Attention<UnitSize::kFull, 64>();
    static const KernelTable small_64 = Attention<UnitSize::kSmall, 64>();
    static const KernelTable full_80 = Attention<UnitSize::kFull, 80>();
    const bool is_small = block_size < KvLayout::kUnitTokens;
    if (head_dim == 128 && !is_small) return element == DataType::kBFloat16 ? &bf16 : &f16;
    if (element != DataType::kBFloat16) return nullptr;
    if (head_dim == 80) return is_small ? nullptr : &full_80;
    if (head_dim == 64) return is_small ? &small_64 : &full_64;
    return nullptr;
  }
};

}  // namespace

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* /*reason*/) {
  return std::make_unique<MutatedDevice>();
}

}  // namespace quire::cuda
