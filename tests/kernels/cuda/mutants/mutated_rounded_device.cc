// SPDX-License-Identifier: Apache-2.0

// The emulated device of a mutant of the kernels for weights and inputs of 8 bits. It has no other kernels.

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/make_kernel_table.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

template <typename Element>
KernelTable RoundedTable() {
  KernelTable table;
  table.rounded_int8 = MakeRoundedProductKernels<EmulatedEntry, Element, Int8Numbers>();
  table.rounded_fp8 = MakeRoundedProductKernels<EmulatedEntry, Element, Fp8Numbers>();
  table.rounded_fp8_blocks = MakeRoundedProductKernels<EmulatedEntry, Element, Fp8BlockNumbers>();
  return table;
}

class MutatedRoundedDevice : public EmulatedDevice {
 public:
  const KernelTable* FindKernels(DataType element, int /*head_dim*/, int /*block_size*/) const override {
    static const KernelTable f16 = RoundedTable<F16>(), bf16 = RoundedTable<Bf16>();
    return element == DataType::kBFloat16 ? &bf16 : &f16;
  }
};

}  // namespace

std::unique_ptr<Device> MakeDeviceUnderTest(std::string* /*reason*/) {
  return std::make_unique<MutatedRoundedDevice>();
}

}  // namespace quire::cuda
