// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/launched_kernels.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

namespace quire::cuda {
namespace {

class LaunchedKernels : public testing::Environment {
 public:
  void Note(const Device& device) {
    ForEachTable(device, [&](DataType element, int head_dim, int block_size, const KernelTable& kernels) {
      const std::string of_element = std::string(" of ") + Name(element);
      const std::string of_heads = of_element + ", heads of " + std::to_string(head_dim);
      const std::string of_blocks = of_heads + ", blocks of " + std::to_string(block_size);
      const auto note = [&](const std::string& name, const auto& kernel) {
        was_launched_[name] |= device.HasLaunched(kernel.entry);
      };
      note("attention_decode" + of_blocks, kernels.attention_decode);
      note("attention_prefill" + of_blocks, kernels.attention_prefill);
      if (kernels.attention_prefill_sm90.entry != nullptr) {
        note("attention_prefill_sm90" + of_blocks, kernels.attention_prefill_sm90);
      }
      note("attention_merge" + of_heads, kernels.attention_merge);
      note("rope_append" + of_blocks, kernels.rope_append);
      if (kernels.int8_kv != nullptr) {
        const std::string of_int8 = of_blocks + ", K and V of int8";
        note("attention_decode" + of_int8, kernels.int8_kv->attention_decode);
        note("attention_prefill" + of_int8, kernels.int8_kv->attention_prefill);
        if (kernels.int8_kv->attention_prefill_sm90.entry != nullptr) {
          note("attention_prefill_sm90" + of_int8, kernels.int8_kv->attention_prefill_sm90);
        }
        note("rope_append" + of_int8, kernels.int8_kv->rope_append);
      }
      note("rms_norm" + of_element, kernels.rms_norm);
      note("silu_mul" + of_element, kernels.silu_mul);
      note("add_bias" + of_element, kernels.add_bias);
      note("gather_rows", kernels.gather_rows);
      note("copy_blocks", kernels.copy_blocks);
      note("sampling", kernels.sampling);
      for (const auto& [format, quantized] :
           {std::pair("int4", &kernels.int4), {"int8", &kernels.int8}, {"fp8", &kernels.fp8}}) {
        const std::string of_format = std::string(" of ") + format + of_element;
        for (int i = 0; i < 3; ++i) {
          note("product of " + std::to_string(QuantizedKernels::kTokens[i]) + of_format, quantized->products[i]);
        }
        note("dequantize" + of_format, quantized->dequantize);
      }
      note("round_rows" + of_element, kernels.rounded_int8.round_rows);
      for (int i = 0; i < 4; ++i) {
        note("rounded product of " + std::to_string(QuantizedKernels::kTokens[i]) + of_element,
             kernels.rounded_int8.products[i]);
      }
      note("scale_sums" + of_element, kernels.rounded_int8.scale_sums);
      note("split_sum" + of_element, kernels.split_sum);
      note("gather_columns", kernels.gather_columns);
    });
  }

  void TearDown() override {
    const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() < tests.total_test_count()) return;  // A filter or a shard.
    for (const auto& [name, was_launched] : was_launched_) EXPECT_TRUE(was_launched) << "no test launches " << name;
  }

 private:
  // By the name of a kernel with the parameters that it has. Tables share some kernels.
  std::map<std::string, bool> was_launched_;
};

// GoogleTest owns it.
LaunchedKernels* const launched_kernels = new LaunchedKernels;
[[maybe_unused]] const testing::Environment* const registered = testing::AddGlobalTestEnvironment(launched_kernels);

}  // namespace

void NoteLaunchedKernels(const Device& device) {
  launched_kernels->Note(device);
}

}  // namespace quire::cuda
