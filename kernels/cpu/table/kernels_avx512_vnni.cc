// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE avx512_vnni
#include "kernels/cpu/attention/attention_int8.h"
#include "kernels/cpu/linear/linear_int4_kernel.h"
#include "kernels/cpu/linear/linear_int8_kernel.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu {
namespace avx512_vnni {

KernelTable MakeTable() {
  KernelTable table = Avx512Kernels();
  table.linear[int(WeightFormat::kInt8)] = Linear<QuantizedRow, Int8Panel>;
  table.linear[int(WeightFormat::kInt4)] = Linear<GroupedRow, Int4Panel>;
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
