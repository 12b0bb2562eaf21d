// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_LINEAR_H_
#define QUIRE_KERNELS_LINEAR_H_

#include <cstdint>

#include "kernels/types.h"

namespace quire {

// A weight matrix in the form that the backend multiplies fastest. It is made once at load and is opaque to callers.
class PackedMatrix {
 public:
  virtual ~PackedMatrix() = default;
};

// Sums over k in slices. When several devices share a product, each of them has all weights of some outputs, and then
// nothing crosses devices; or it has some columns of all weights, as in the two products that end attention and the
// MLP, and then the devices' sums are added. Such a product is summed in slices of k on one device, too: every slice
// from zero, and then the slices as a balanced binary tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). 2, 4 or 8
// devices that have adjacent slices each add the lower part of the same tree, and its upper part gives the same bits as
// one device. Bias, scale, softcap and residual come after the tree.
//
// CPUs sum in slices. GPUs do not: their sums have an order of their own. Products in kInt8 are not divided either,
// because a row has one scale and its sum is an exact whole number, which has the same bits in any order.
constexpr int kMaxSlices = 8;
// Slices are multiples of this.
constexpr int kSliceStep = 32;
// The least columns of a slice. They are a block of k of the products with AMX tiles of many rows, which keep their
// sums in memory between two blocks anyway. Thus slices of this size cost the same memory traffic as no slices.
constexpr int kMinSliceColumns = 512;
// Returns the number of slices of a matrix of `cols` columns: the most whose slices have enough columns and consist of
// whole units of `unit` columns (the heads of attention, or 1) and of whole groups of `group` columns (0 if there are
// no groups).
constexpr int NumSlices(int cols, int unit, int group) {
  for (int n = kMaxSlices; n > 1; n /= 2) {
    const int slice = cols / n;
    const bool is_whole = cols % n == 0 && slice % kSliceStep == 0 && slice % unit == 0;
    if (is_whole && (group == 0 || slice % group == 0) && slice >= kMinSliceColumns) return n;
  }
  return 1;
}

// A source matrix for packing: row-major [rows, cols] in the precision of its file. Borrowed for the call.
struct MatrixView {
  const void* data;
  int rows;
  int cols;
  DataType type;
  // A power of two up to kMaxSlices, so that slices are multiples of kSliceStep. The same in all matrices of a stack;
  // 1 for gated matrices.
  int num_slices = 1;
};

// How the numbers of a quantized matrix are stored, and what happens to the input of a product by it. GPUs round the
// input in kInt8 and kFp8 alone (Operations::RoundsQuantizedInputs).
//   kInt8         Numbers of 8 bits. The input is rounded to 8 bits, with a scale for each row.
//   kInt4         Numbers of 4 bits. The input is rounded to 8 bits, with a scale for each group of columns.
//   kInt4Float32  Numbers of 4 bits. The input stays in float32.
//   kInt4BFloat16 Numbers of 4 bits. The input is rounded to bfloat16 where CPUs have instructions for it. With AMX,
//                 each weight is rounded, too, and the product is that of a matrix of bfloat16 with these weights, bit
//                 for bit. With AVX512-BF16, the sum of a group is that of a matrix of bfloat16 with the numbers less
//                 their zero points. Other CPUs treat it as kInt4Float32.
//   kFp8          Numbers of FP8 (E4M3). The input is the same as in products by bfloat16, but some GPUs round it to
//                 FP8, with a scale for each row, or for 128 columns of a row if blocks of 128 x 128 weights share one.
enum class QuantizedFormat : uint8_t { kInt8, kInt4, kInt4Float32, kInt4BFloat16, kFp8 };

constexpr bool HasGroups(QuantizedFormat format) {
  return format != QuantizedFormat::kInt8;
}
constexpr bool IsInt4(QuantizedFormat format) {
  return HasGroups(format) && format != QuantizedFormat::kFp8;
}

// A source matrix of numbers with scales. Borrowed for the call. The weight of row n and column k is
//   values[n][k] * scales[n]                                                  in kInt8,
//   values[n][k] * scales[n][k / group]                                       in kFp8,
//   (values[n][k] - zeros[n][k / group]) * scales[n][k / group]               in the other formats.
struct QuantizedMatrixView {
  const int8_t* values;  // [rows, cols]: in kFp8 the bits of the numbers, none of them a NaN; in int4 [0, 15].
  const float* scales;   // [rows], or [rows, ceil(cols / group)] with groups. Finite.
  int rows;
  int cols;  // At most kMaxQuantizedCols.
  QuantizedFormat format = QuantizedFormat::kInt8;
  // With groups: 32, 64 or 128 in int4, and a multiple of kFp8GroupStep in kFp8, which may be more than cols. The last
  // group of a row may be shorter.
  int group = 0;
  const uint8_t* zeros = nullptr;  // In int4: one for each scale, at most 16.
  // With groups, it is [cols] or null. Column k is multiplied by element order[k] of the input instead of element k. A
  // stack of matrices has one order.
  const int32_t* order = nullptr;
  // In kFp8: whether the checkpoint has blocks, of which one can be as wide as a row.
  bool has_blocks = false;
  // This is the same as in MatrixView. With groups, slices are whole groups; with an order, they divide the ordered
  // columns. Products in kInt8 are summed as if this were 1.
  int num_slices = 1;
};
// The most products of two numbers of 8 bits whose exact sum fits into 32 bits.
constexpr int kMaxQuantizedCols = 1 << 17;
// The most products of a number of 8 bits and one of 4 bits whose sum fits into the 24 bits of a float32.
constexpr int kMaxInt4Group = 128;
constexpr int kMinInt4Group = 32;
constexpr int kFp8GroupStep = 32;

// y[num_tokens, rows] = cap(scale * (x[num_tokens, cols] * w^T (+ bias))) (+ residual); residual may be y itself.
// cap(a) is softcap * tanh(a / softcap), or a without a softcap.
struct LinearArgs {
  const void* x;          // [num_tokens, cols] in the type that Backend::InputType(*w) returns.
  const PackedMatrix* w;  // A matrix that Backend::Pack has made.
  const float* bias;      // [rows] or null.
  const void* residual;   // [num_tokens, rows] activations, or null.
  void* y;                // [num_tokens, rows] in y_type.
  int num_tokens;
  InputLayout x_layout = InputLayout::kRows;  // Either kRows or what Backend::InputLayoutOf returns.
  DataType y_type = DataType::kFloat32;       // Either float32 or the type of activations.
  float scale = 1;                            // REQUIRES: Has(OptionalPart::kScaledProducts), unless it is 1.
  float softcap = 0;  // At least 0; 0 means none. REQUIRES: Has(OptionalPart::kSoftcap), unless it is 0.
};

// The activation of a gated MLP.
//   kSilu      a / (1 + exp(-a))
//   kGeluTanh  a / (1 + exp(-2 u)) with u = sqrt(2 / pi) * (a + 0.044715 a^3), which is 0.5 a (1 + tanh(u)), the
//              approximation of Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
//   kClampedSwiglu  a / (1 + exp(-kSwigluAlpha a)) of the gate a, which is at most kSwigluLimit. It multiplies up + 1,
//              where up is clamped to [-kSwigluLimit, kSwigluLimit] (OpenAI, "gpt-oss-120b & gpt-oss-20b Model Card",
//              2025).
enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSwiglu };
inline constexpr float kSwigluAlpha = 1.702f;
inline constexpr float kSwigluLimit = 7;

// y[num_tokens, dim] = activation(x * gate^T (+ bias)) * (x * up^T (+ bias)).
// This is the first half of a gated MLP (Shazeer, "GLU Variants Improve Transformer", 2020).
struct GatedLinearArgs {
  const void* x;          // [num_tokens, cols] in the type that Backend::InputType(*w) returns.
  const PackedMatrix* w;  // A matrix that Backend::PackGated has made; gate and up are [dim, cols].
  const float* bias;      // [2 * dim], the bias of the gate and then of up; or null.
  void* y;                // [num_tokens, dim]
  DataType y_type;        // Either float32 or the input type of a matrix.
  int num_tokens;
  InputLayout x_layout = InputLayout::kRows;  // Either kRows or what Backend::InputLayoutOf returns.
  InputLayout y_layout = InputLayout::kRows;  // REQUIRES: kRows if x_layout is kRows.
  Activation activation = Activation::kSilu;  // REQUIRES: Has of the optional part of this name, except for kSilu.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_LINEAR_H_
