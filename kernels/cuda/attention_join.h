#ifndef QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_

#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// One element of a row's output, to which partial results are joined in ascending order of their tokens.
struct JoinedElement {
  SoftmaxState state = {kMinusInfinity, 0};
  float value = 0;

  QUIRE_DEVICE void Join(SoftmaxState from, float from_value) {
    if (from.sum == 0) return;
    // Same formula as Merge() of softmax_state.h, but with fixed rounding: kernels that join the same parts get the
    // same bits.
    const float max = state.max > from.max ? state.max : from.max;
    const float into = simt::Exp2(state.max - max), weight = simt::Exp2(from.max - max);
    state = {max, __builtin_fmaf(state.sum, into, from.sum * weight)};
    value = __builtin_fmaf(value, into, from_value * weight);
  }

  // Joins element d of partial result `index` of `args`.
  template <int kHeadDim>
  QUIRE_DEVICE void JoinPartial(const AttentionArgs& args, int index, int d) {
    const SoftmaxState from = {simt::LoadGlobal(&args.partial_states[index].max),
                               simt::LoadGlobal(&args.partial_states[index].sum)};
    Join(from, simt::LoadGlobal(args.partial_values + int64_t{index} * kHeadDim + d));
  }

  // Rows that saw no token give 0. NaN stays NaN, so that it is noticed.
  QUIRE_DEVICE float Output() const { return state.sum == 0 ? 0 : value / state.sum; }
};

// Stores the output elements d and d + 1 of a row, which are `low` and `high`.
template <typename Element, int kHeadDim>
QUIRE_DEVICE void StoreOutput(const ItemRows& rows, int row, int d, float low, float high) {
  const AttentionArgs& args = rows.args;
  const int64_t num_heads = int64_t{args.num_kv_heads} * args.group_size;
  uint16_t* out = args.out + (rows.Token(row) * num_heads + rows.Head(row)) * kHeadDim + d;
  simt::StoreGlobal(reinterpret_cast<uint32_t*>(out), Element::Pack(low, high));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
