// SPDX-License-Identifier: Apache-2.0

// The emulated device of a mutant of the kernels for quantized weights and inputs of 16 bits. It has no other kernels.

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

template <typename Element>
KernelTable QuantizedTable() {
  KernelTable table;
  table.int4 = MakeQuantizedKernels<EmulatedEntry, Element, Int4Values>();
  table.int8 = MakeQuantizedKernels<EmulatedEntry, Element, Int8Values>();
  table.fp8 = MakeQuantizedKernels<EmulatedEntry, Element, Fp8Values>();
  table.split_sum = MakeKernel<EmulatedEntry, SplitSumKernel<Element>>();
  table.gather_columns = MakeKernel<EmulatedEntry, GatherColumnsKernel>();
  return table;
}

class MutatedQuantizedDevice : public EmulatedDevice {
 public:
  const KernelTable* FindKernels(DataType element, int /*head_dim*/, int /*block_size*/) const override {
    static const KernelTable f16 = QuantizedTable<F16>(), bf16 = QuantizedTable<Bf16>();
    return element == DataType::kBFloat16 ? &bf16 : &f16;
  }
};

}  // namespace

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* /*reason*/) {
  return std::make_unique<MutatedQuantizedDevice>();
}

}  // namespace quire::cuda
