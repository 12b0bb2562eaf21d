#ifndef QUIRE_KERNELS_CPU_KERNEL_TABLE_H_
#define QUIRE_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstdint>

#include "kernels/cpu/cpu_features.h"
#include "kernels/softmax_state.h"
#include "kernels/types.h"

namespace quire::cpu {

// Weights are packed in panels of 32 output columns (rows of the source matrix), the last one filled up with zeros:
//   float32, float16: [panel][k][32]
//   bfloat16:         [panel][k / 2][32][2], so that one load brings two consecutive k of 16 columns; k is padded with
//                     zeros to a multiple of 32. 32 k of a panel are the two right-hand tiles of an AMX product.
constexpr int kPanelColumns = 32;
constexpr int kBFloat16PanelStep = 32;  // What k is padded to in panels of bfloat16.

// In the panels of a gated matrix the first 16 columns are of the gate, the others the same 16 of up.
constexpr int kGatedColumns = kPanelColumns / 2;

// Multiplies rows of x by some panels. For every sum the products are added in one fixed order of ascending k, whatever
// the number of rows. Then y = (sum, then + bias, then + residual), or silu(gate + bias) * (up + bias).
struct LinearTask {
  const void* x;          // [num_rows, x_stride] in the type that linear_input of the kernels names.
  const void* panels;     // The first panel of the task.
  bool is_gated;          // So are the panels.
  const float* bias;      // [num_columns], of the task's first panel, or null.
  const float* up_bias;   // Of up, when `bias` is that of a gate.
  const float* residual;  // Like y, or null; may be y. Null for a gated matrix.
  void* y;                // [num_rows, y_stride], at the task's first column.
  DataType y_type;        // float32, or bfloat16 for a gated matrix.
  int64_t x_stride;       // In elements, as all here.
  int64_t y_stride;
  int64_t panel_elements;  // From one panel to the next.
  int num_rows;
  int cols;
  int num_panels;
  int num_columns;  // Columns of y: those of all panels, but for padding at the end.
};

// Attends rows of queries to consecutive 16-token units of one KV head, updating each row's running softmax. Tokens are
// taken in tiles of 64 absolute positions. Each row sees the tokens [visible_begin, visible_end) and its result depends
// on no other.
struct AttentionTask {
  const void* const* units;      // [num_units + num_following] K of each, in the layout of its type; V follows K.
  const float* const* queries;   // [num_rows], each [head_dim]
  const int32_t* visible_begin;  // [num_rows] absolute positions
  const int32_t* visible_end;    // [num_rows]
  SoftmaxState* states;          // [num_rows] what the rows have seen before, updated; an empty state is fine.
  float* values;                 // [num_rows, padded_dim] sum of exp(score - max) * v of the same, updated.
  int num_units;
  int num_following;  // Further units that may be read later: worth fetching towards the end.
  int first_token;    // Position of the first token of units[0], a multiple of 64.
  int num_rows;
  int head_dim;
  int padded_dim;  // head_dim rounded up to 16; columns of V in a unit. K is [head_dim][16] in padded_dim * 16
                   // elements.
  float scale;
};
constexpr int kAttentionTileTokens = 64;
constexpr int kAttentionTileUnits = kAttentionTileTokens / 16;
// Rows that kernels with products of pairs serve with one reading of K and V; more are taken in several.
constexpr int kMaxAttentionRows = 128;

// Draws with the Gumbel-max trick: the index i of the largest scores[i] + g(i), ties to the lowest, where g(i) is the
// noise of token i. Scores are at most 0.
struct GumbelTask {
  const float* scores;    // [count]
  const int32_t* tokens;  // [count] ascending, or null: token i is i.
  int count;
  int best_score;  // Index of the largest score.
  uint64_t seed;
  uint32_t position;
};

struct RowExtremes {
  float max;
  int32_t argmax;  // The lowest index of the maximum; 0 when there is a NaN.
  bool is_finite;  // No infinity, no NaN.
};

// The operations that are compiled once per instruction set.
struct KernelTable {
  // Indexed by DataType: of the weights, of the KV cache.
  void (*linear[3])(const LinearTask& task);
  // The type of x: float32, or bfloat16 where products are made by bfloat16 instructions. Then rows of x go on with
  // zeros from `cols` to the next multiple of 32.
  DataType linear_input[3];
  void (*attend[3])(const AttentionTask& task);
  // attend[kBFloat16] multiplies pairs of bfloat16, so it computes other bits than attend[kFloat32] on the same values.
  bool multiplies_pairs;

  // Joins a state over other tokens, which is not empty, to `into`.
  void (*merge_softmax)(SoftmaxState* into, float* into_values, SoftmaxState from, const float* from_values,
                        int padded_dim);
  // out[0, dim) = values / sum.
  void (*finish_softmax)(SoftmaxState state, const float* values, float* out, int dim);

  // Indexed by the type of y.
  void (*rms_norm[3])(const float* x, const float* weight, void* y, int dim, float epsilon);
  // Rotates x[i] and x[i + half] by the angle whose cosine and sine are cos[i] and sin[i].
  void (*rotate_half)(float* x, const float* cos, const float* sin, int half);
  // to[0, n) in the given type, rounded to nearest even.
  void (*convert[3])(const float* from, void* to, int n);
  // The other way: to[0, n) from the given type.
  void (*widen[3])(const void* from, float* to, int n);

  RowExtremes (*extremes)(const float* x, int n);
  // The largest of each chunk of 64; chunk_max has ceil(n / 64) entries.
  void (*chunk_max)(const float* x, int n, float* chunk_max);
  // Sum of exp(x - max), in double over sums of 64.
  double (*sum_exp)(const float* x, int n, float max);
  // w = exp(x).
  void (*exp)(const float* x, int n, float* w);
  // Indices with x >= threshold, ascending; returns how many. `indices` has room for n.
  int (*collect)(const float* x, int n, float threshold, int32_t* indices);
  // 1 + how many precede x[index] in the order of falling value, equal values by index.
  int (*rank)(const float* x, int n, int index);
  // y = x - high - low, but not below the lowest finite number; y may be x.
  void (*subtract)(const float* x, int n, float high, float low, float* y);
  // y = (x - max) / temperature; y may be x.
  void (*scale_scores)(const float* x, int n, float max, float temperature, float* y);
  int (*gumbel_argmax)(const GumbelTask& task);
};

const KernelTable& GenericKernels();
const KernelTable& Avx2Kernels();
const KernelTable& Avx512Kernels();
// Those of AVX-512, but for products of bfloat16.
const KernelTable& Avx512Bf16Kernels();
const KernelTable& AmxKernels();

// REQUIRES: isa is one of SupportedIsas().
const KernelTable& KernelsFor(Isa isa);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_KERNEL_TABLE_H_
