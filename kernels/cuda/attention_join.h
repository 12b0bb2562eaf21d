#ifndef QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_

#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// One element of a row's output while partial results are joined to it, in ascending order of their tokens.
struct JoinedElement {
  SoftmaxState state = {kMinusInfinity, 0};
  float value = 0;

  QUIRE_DEVICE void Join(SoftmaxState from, float from_value) {
    if (from.sum == 0) return;
    // As Merge() of softmax_state.h, but where to round is said: kernels that join the same parts get the same bits.
    const float max = state.max > from.max ? state.max : from.max;
    const float into = simt::Exp2(state.max - max), weight = simt::Exp2(from.max - max);
    state = {max, __builtin_fmaf(state.sum, into, from.sum * weight)};
    value = __builtin_fmaf(value, into, from_value * weight);
  }

  // Partial result `index` of `args`, element d.
  template <int kHeadDim>
  QUIRE_DEVICE void JoinPartial(const AttentionArgs& args, int index, int d) {
    const SoftmaxState from = {simt::LoadGlobal(&args.partial_states[index].max),
                               simt::LoadGlobal(&args.partial_states[index].sum)};
    Join(from, simt::LoadGlobal(args.partial_values + int64_t{index} * kHeadDim + d));
  }

  // What saw nothing is 0. What is not a number stays that, so that somebody notices.
  QUIRE_DEVICE float Output() const { return state.sum == 0 ? 0 : value / state.sum; }
};

// The output element d of a row; d and d + 1 are written by neighbours, so a pair at a time.
template <typename Element, int kHeadDim>
QUIRE_DEVICE void StoreOutput(const ItemRows& rows, int row, int d, float low, float high) {
  const AttentionArgs& args = rows.args;
  const int64_t num_heads = int64_t{args.num_kv_heads} * args.group_size;
  uint16_t* out = args.out + (rows.Token(row) * num_heads + rows.Head(row)) * kHeadDim + d;
  simt::StoreGlobal(reinterpret_cast<uint32_t*>(out), Element::Pack(low, high));
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
