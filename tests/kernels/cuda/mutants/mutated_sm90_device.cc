// SPDX-License-Identifier: Apache-2.0

// The emulated device of a mutant of the attention kernel for compute capability 9.0. It is compiled from a header with
// a planted bug, and it has the attention kernels for heads of 64 and blocks of at least 16 tokens alone, so that the
// programs of its many mutants are built quickly.

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

KernelTable MakeAttention() {
  KernelTable table;
  table.attention_decode = MakeKernel<EmulatedEntry, AttentionDecode<Bf16, UnitSize::kFull, 64, 3>>();
  table.attention_prefill = MakeKernel<EmulatedEntry, AttentionPrefill<Bf16, UnitSize::kFull, 64, 2>>();
  table.attention_prefill_sm90 = MakeKernel<EmulatedEntry, AttentionPrefillSm90<Bf16, 64>>();
  table.attention_merge = MakeKernel<EmulatedEntry, AttentionMergeKernel<Bf16, 64>>();
// Only mutants of kernels for K and V of int8 compile these kernels.
#if defined(QUIRE_MUTANT_INT8_KV)
  static const KernelTable int8_kv = WithInt8Kv<EmulatedEntry, Bf16, 64, 3, 2, /*kIsSm90=*/true>(table);
  table.int8_kv = &int8_kv;
#endif
  return table;
}

class MutatedSm90Device : public EmulatedDevice {
 public:
  const KernelTable* FindKernels(DataType element, int head_dim, int block_size) const override {
    static const KernelTable attention = MakeAttention();
    const bool has_kernels = element == DataType::kBFloat16 && head_dim == 64 && block_size >= KvLayout::kUnitTokens;
    return has_kernels ? &attention : nullptr;
  }
};

}  // namespace

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* /*reason*/) {
  return std::make_unique<MutatedSm90Device>();
}

}  // namespace quire::cuda
