// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx512_vnni
#include "kernels/cpu/attention/attention_int8.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/linear_int4_kernel.h"
#include "kernels/cpu/linear/linear_int8_kernel.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu {
namespace avx512_vnni {

KernelTable MakeTable() {
  KernelTable table = Avx512Kernels();
  table.linear[int(WeightFormat::kInt8)] = Linear<QuantizedRow, Int8Panel>;
  table.linear[int(WeightFormat::kInt4)] = Linear<GroupedRow, Int4Panel>;
  table.linear[int(WeightFormat::kQ8_0)] = LinearQ8_0;
  table.linear[int(WeightFormat::kQ4_K)] = LinearQ4_K;
  table.linear[int(WeightFormat::kQ5_K)] = LinearQ5_K;
  table.linear[int(WeightFormat::kQ6_K)] = LinearQ6_K;
  table.linear[int(WeightFormat::kIQ4_NL)] = LinearIQ4_NL;
  table.linear[int(WeightFormat::kMXFP4)] = LinearMXFP4;
  table.quantize_blocks = QuantizeBlocks;
  table.attend[int(KvType::kInt8)] = AttendInt8;
  table.quantize_row = QuantizeRow;
  table.quantized_bytes = sizeof(QuantizedValue);
  return table;
}

}  // namespace avx512_vnni

const KernelTable& Avx512VnniKernels() {
  static const KernelTable table = avx512_vnni::MakeTable();
  return table;
}

}  // namespace quire::cpu
