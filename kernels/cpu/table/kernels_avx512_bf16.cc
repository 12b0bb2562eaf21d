// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx512_bf16
#include "kernels/cpu/attention/attention_bf16.h"
#include "kernels/cpu/linear/linear_bf16_kernel.h"
#include "kernels/cpu/linear/linear_fp8_kernel.h"
#include "kernels/cpu/linear/linear_int4_bf16_kernel.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu {
namespace avx512_bf16 {

KernelTable MakeTable() {
  KernelTable table = Avx512VnniKernels();
  table.linear[int(WeightFormat::kBFloat16)] = Linear<BFloat16, BFloat16>;
  table.linear_input[int(WeightFormat::kBFloat16)] = DataType::kBFloat16;
  table.linear[int(WeightFormat::kInt4BFloat16)] = LinearInt4BFloat16;
  table.linear_input[int(WeightFormat::kInt4BFloat16)] = DataType::kBFloat16;
  table.linear[int(WeightFormat::kFp8)] = LinearFp8<BFloat16>;
  table.linear_input[int(WeightFormat::kFp8)] = DataType::kBFloat16;
  table.attend[int(KvType::kBFloat16)] = AttendPairs<DotProducts>;
  table.multiplies_pairs = true;
  return table;
}

}  // namespace avx512_bf16

const KernelTable& Avx512Bf16Kernels() {
  static const KernelTable table = avx512_bf16::MakeTable();
  return table;
}

}  // namespace quire::cpu
