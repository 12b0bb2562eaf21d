// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_H_

#include <cstdint>

#include "kernels/cpu/attention/attention_task.h"
#include "kernels/cpu/isa/cpu_features.h"
#include "kernels/cpu/linear/linear_task.h"
#include "kernels/cpu/linear/weight_panels.h"
#include "kernels/cpu/rows/expert_sum_task.h"
#include "kernels/cpu/sampling/sampling_task.h"
#include "kernels/kv_layout.h"
#include "kernels/softmax_state.h"
#include "kernels/types.h"

namespace quire::cpu {

// The operations that are compiled once per instruction set.
struct KernelTable {
  // The function for kInt4Units is null without takes_tiles, and the one for kInt4BFloat16 where kInt4Float32 is used
  // instead.
  void (*linear[kNumWeightFormats])(const LinearTask& task);
  // The type of x: float32, or bfloat16 where bfloat16 instructions multiply. With bfloat16, the rows of x are padded
  // with zeros from `cols` to the next multiple of 32. Rows for kInt8 and kInt4 are made from float32.
  DataType linear_input[kNumWeightFormats];
  // The most rows of x whose sums are in registers at a time, except in AMX tiles.
  int max_tile_rows;
  // Tells whether linear[kBFloat16] and linear[kInt4] also take tiles, and linear[kInt4Units] takes pairs of k.
  bool takes_tiles;
  // Stores rows in pairs of k. It is null without takes_tiles.
  void (*pair_rows)(const PairRowsTask& task);
  // Writes the header and the numbers of a row. `cols` is padded with zeros to a multiple of 64. All instruction sets
  // give the same header and the same numbers, in forms of quantized_bytes each.
  void (*quantize_row)(const float* x, int cols, void* row);
  int quantized_bytes;
  // All instruction sets give the same headers and numbers.
  void (*quantize_groups)(const QuantizeGroupsTask& task);
  // The same.
  void (*quantize_blocks)(const QuantizeBlocksTask& task);
  // Indexed by KvType. Attention over int8 has the same bits on all instruction sets with fused multiply-add.
  void (*attend[kNumKvTypes])(const AttentionTask& task);
  // Whether attend[kBFloat16] multiplies pairs of bfloat16. Then its bits differ from attend[kFloat32] on the same
  // values.
  bool multiplies_pairs;

  // Rounds K or V of one token and head as kv_layout.h says. All instruction sets give the same numbers and scale.
  void (*quantize_head)(const float* x, int dim, int8_t* values, float* scale);

  // Joins the rows of `from`, which are over other tokens, to the same rows of `into`. A row that is empty in `from`
  // stays as it is. States are [num_rows] and values [num_rows, padded_dim].
  void (*merge_softmax)(int num_rows, SoftmaxState* into, float* into_values, const SoftmaxState* from,
                        const float* from_values, int padded_dim);
  // out[0, dim) = values / sum.
  void (*finish_softmax)(SoftmaxState state, const float* values, float* out, int dim);

  // Indexed by the type of y. `residual` may be null.
  void (*rms_norm[3])(const float* x, const float* weight, const float* residual, void* y, int dim, float epsilon);
  // Rotates x[i] and x[i + half] by the angle whose cosine and sine are cos[i] and sin[i].
  void (*rotate_half)(float* x, const float* cos, const float* sin, int half);
  // Stores to[0, n) in the given type, rounded to nearest even.
  void (*convert[3])(const float* from, void* to, int n);
  // The inverse of convert: reads n values of the given type and stores them as float32.
  void (*widen[3])(const void* from, float* to, int n);

  void (*sum_experts)(const ExpertSumTask& task);

  RowExtremes (*extremes)(const float* x, int n);
  // Writes the largest value of each chunk of 64; chunk_max has ceil(n / 64) entries.
  void (*chunk_max)(const float* x, int n, float* chunk_max);
  // Sum of exp(x - max). Blocks of 64 terms are summed in float and added up in double.
  double (*sum_exp)(const float* x, int n, float max);
  // w = exp(x).
  void (*exp)(const float* x, int n, float* w);
  // Writes the indices with x >= threshold in ascending order and returns their number. `indices` has room for n.
  int (*collect)(const float* x, int n, float threshold, int32_t* indices);
  // Returns 1 + the number of entries before x[index] in the order of falling value, equal values by index.
  int (*rank)(const float* x, int n, int index);
  // y = x - high - low, bounded below by the lowest finite number; y may be x.
  void (*subtract)(const float* x, int n, float high, float low, float* y);
  // y = (x - max) / temperature; y may be x.
  void (*scale_scores)(const float* x, int n, float max, float temperature, float* y);
  int (*gumbel_argmax)(const GumbelTask& task);
};

const KernelTable& GenericKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
// Like Avx512Kernels(), except that products of rounded inputs use VPDPBUSD. The bits are the same.
const KernelTable& Avx512VnniKernels();
// Like Avx512VnniKernels(), except for products of bfloat16.
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();

// REQUIRES: isa is one of SupportedIsas().
const KernelTable& KernelsFor(Isa isa);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_TABLE_KERNEL_TABLE_H_
