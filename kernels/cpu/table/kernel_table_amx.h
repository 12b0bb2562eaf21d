// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_AMX_H_
#define QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_AMX_H_

#include "kernels/cpu/attention/attention_amx.h"
#include "kernels/cpu/attention/attention_int8_amx.h"
#include "kernels/cpu/linear/linear_amx_int4_bf16_kernel.h"
#include "kernels/cpu/linear/linear_amx_kernel.h"
#include "kernels/cpu/linear/linear_amx_quantized_kernel.h"
#include "kernels/cpu/linear/quantize_groups_avx512.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// VNNI is faster than tiles for fewer rows than these. It gives the same bits.
constexpr int kLeastInt8Rows = 3;
constexpr int kLeastInt4Rows = 8;
// From this number of rows on, blocks of a panel that stay in the first-level cache are faster than whole panels.
constexpr int kLeastBlockedInt8Rows = 33;

inline void LinearInt8(const LinearTask& task) {
  if (task.num_rows < kLeastInt8Rows) return Avx512VnniKernels().linear[int(WeightFormat::kInt8)](task);
  if (task.num_rows >= kLeastBlockedInt8Rows && task.num_rows <= BlockedInt8Product::kMaxRows) {
    BlockedInt8Product(task).Run();
    return;
  }
  QuantizedProduct<Int8Tiles>(task).Run();
}
inline void LinearInt4(const LinearTask& task) {
  if (task.x.is_tiled) return TiledInt4Product(task).Run();
  if (task.num_rows < kLeastInt4Rows) return Avx512VnniKernels().linear[int(WeightFormat::kInt4)](task);
  QuantizedProduct<Int4Tiles>(task).Run();
}

inline void AttendInt8Amx(const AttentionTask& task) {
  if (task.num_rows < kMinTileRows) return Avx512VnniKernels().attend[int(KvType::kInt8)](task);
  AttendInt8Tiles(task);
}

inline KernelTable MakeTable() {
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

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_AMX_H_
