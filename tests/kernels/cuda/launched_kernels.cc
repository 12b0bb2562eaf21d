// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/launched_kernels.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <set>
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
      std::set<const void*> noted;
      const auto note = [&](const std::string& name, const auto& kernel) {
        noted.insert(kernel.entry);
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
      note("gelu_mul" + of_element, kernels.gelu_mul);
      note("activate" + of_element, kernels.activate);
      note("add_bias" + of_element, kernels.add_bias);
      note("scale_rows" + of_element, kernels.scale_rows);
      note("cap_logits", kernels.cap_logits);
      note("gather_rows", kernels.gather_rows);
      note("gather_scaled_rows" + of_element, kernels.gather_scaled_rows);
      note("copy_blocks", kernels.copy_blocks);
      note("route", kernels.route);
      note("expert_plan", kernels.expert_plan);
      note("expert_product" + of_element, kernels.expert_product);
      note("expert_sum" + of_element, kernels.expert_sum);
      note("add_parts" + of_element, kernels.add_parts);
      note("join_columns", kernels.join_columns);
      note("sampling", kernels.sampling);
      for (const auto& [format, quantized] :
           {std::pair("int4", &kernels.int4), {"int8", &kernels.int8}, {"fp8", &kernels.fp8}}) {
        const std::string of_format = std::string(" of ") + format + of_element;
        for (size_t i = 0; i < std::size(quantized->products); ++i) {
          note("product of " + std::to_string(QuantizedKernels::kTokens[i]) + of_format, quantized->products[i]);
        }
        note("dequantize" + of_format, quantized->dequantize);
      }
      for (const auto& [format, rounded] : {std::pair("int8", &kernels.rounded_int8),
                                            {"fp8", &kernels.rounded_fp8},
                                            {"fp8 in blocks", &kernels.rounded_fp8_blocks}}) {
        if (!rounded->exist()) continue;
        const std::string of_format = std::string(" of ") + format + of_element;
        if (rounded->round_rows.entry != nullptr) note("round_rows" + of_format, rounded->round_rows);
        if (rounded->round_groups.entry != nullptr) note("round_groups" + of_format, rounded->round_groups);
        for (size_t i = 0; i < std::size(rounded->products); ++i) {
          note("rounded product of " + std::to_string(QuantizedKernels::kTokens[i]) + of_format, rounded->products[i]);
        }
        note("scale_sums" + of_format, rounded->scale_sums);
      }
      note("split_sum" + of_element, kernels.split_sum);
      note("gather_columns", kernels.gather_columns);
      const auto expect_noted = [&](const auto& kernel) {
        EXPECT_TRUE(noted.contains(kernel.entry)) << "a kernel" << of_blocks << " has no name here";
      };
      kernels.ForEach(expect_noted);
      if (kernels.int8_kv != nullptr) kernels.int8_kv->ForEach(expect_noted);
    });
  }

  void TearDown() override {
    const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() < tests.total_test_count()) return;  // There is a filter.
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
