// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_IMPL_H_
#define QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_IMPL_H_

#include "kernels/cpu/attention/attention_int8.h"
#include "kernels/cpu/attention/attention_kernel.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/linear_fp8_kernel.h"
#include "kernels/cpu/linear/linear_int4_kernel.h"
#include "kernels/cpu/linear/linear_int8_kernel.h"
#include "kernels/cpu/linear/linear_kernel.h"
#include "kernels/cpu/rows/elementwise_kernel.h"
#include "kernels/cpu/sampling/sampling_kernel.h"
#include "kernels/cpu/table/kernel_table.h"

namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// All kernels of this namespace. Arrays are in the order of WeightFormat, of KvType or of DataType.
constexpr KernelTable kTable = {
    .linear = {Linear<float, float>, Linear<float, BFloat16>, Linear<float, Float16>, Linear<QuantizedRow, Int8Panel>,
               Linear<GroupedRow, Int4Panel>, Linear<float, Int4Panel>, nullptr, nullptr, LinearFp8<float>, LinearQ8_0,
               LinearQ4_K, LinearQ5_K, LinearQ6_K, LinearIQ4_NL, LinearMXFP4},
    .linear_input = {DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32,
                     DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32,
                     DataType::kFloat32, DataType::kFloat32, DataType::kFloat32, DataType::kFloat32,
                     DataType::kFloat32},
    .max_tile_rows = kMaxTileRows,
    .takes_tiles = false,
    .pair_rows = nullptr,
    .quantize_row = QuantizeRow,
    .quantized_bytes = sizeof(QuantizedValue),
    .quantize_groups = QuantizeGroups,
    .quantize_blocks = QuantizeBlocks,
    .attend = {Attend<float>, Attend<BFloat16>, Attend<Float16>, AttendInt8},
    .multiplies_pairs = false,
    .quantize_head = QuantizeHead,
    .merge_softmax = MergeSoftmax,
    .finish_softmax = FinishSoftmax,
    .rms_norm = {RmsNorm<float>, RmsNorm<BFloat16>, RmsNorm<Float16>},
    .rotate_half = RotateHalf,
    .convert = {Convert<float>, Convert<BFloat16>, Convert<Float16>},
    .widen = {Widen<float>, Widen<BFloat16>, Widen<Float16>},
    .sum_experts = SumExperts,
    .extremes = Extremes,
    .chunk_max = ChunkMax,
    .sum_exp = SumExp,
    .exp = ExpRow,
    .collect = Collect,
    .rank = Rank,
    .subtract = Subtract,
    .scale_scores = ScaleScores,
    .gumbel_argmax = GumbelArgmax,
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_IMPL_H_
