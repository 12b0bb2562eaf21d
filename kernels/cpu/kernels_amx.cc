// SPDX-License-Identifier: Apache-2.0

#define QUIRE_CPU_NAMESPACE amx
#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_int8_amx.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/linear_amx_int4_bf16_kernel.h"
#include "kernels/cpu/linear_amx_kernel.h"
#include "kernels/cpu/linear_amx_quantized_kernel.h"
#include "kernels/cpu/quantize_groups_avx512.h"

namespace quire::cpu {
namespace amx {

KernelTable MakeTable() {
  KernelTable table = Avx512VnniKernels();
  table.linear[int(WeightFormat::kBFloat16)] = LinearBFloat16;
  table.linear_input[int(WeightFormat::kBFloat16)] = DataType::kBFloat16;
  table.takes_tiles = true;
  table.linear[int(WeightFormat::kInt8)] = LinearInt8;
  table.linear[int(WeightFormat::kInt4)] = LinearInt4;
  table.linear[int(WeightFormat::kInt4Units)] = LinearInt4Units;
  table.linear_input[int(WeightFormat::kInt4Units)] = DataType::kBFloat16;
  table.pair_rows = PairRows;
  table.quantize_groups = QuantizeGroupsInRegisters;
  table.attend[int(KvType::kBFloat16)] = AttendAmx;
  table.attend[int(KvType::kInt8)] = AttendInt8Amx;
  table.multiplies_pairs = true;
  return table;
}

}  // namespace amx

const KernelTable& AmxKernels() {
  static const KernelTable table = amx::MakeTable();
  return table;
}

}  // namespace quire::cpu
