// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_

#include "kernels/cuda/attention_tile.h"

namespace quire::cuda {

// Some elements of a row. A thread loads and stores 2 or 4 consecutive ones at once.
template <int kCount>
struct alignas(kCount <= 4 ? kCount * sizeof(float) : sizeof(float)) Floats {
  float x[kCount];
};

// The softmax state of a row and some of its elements, which are not yet divided by state.sum. Partial results are
// joined to them in ascending order of their tokens.
template <int kCount>
struct JoinedElements {
  SoftmaxState state = {kMinusInfinity, 0};
  Floats<kCount> values = {};

  QUIRE_DEVICE void Join(SoftmaxState from, const Floats<kCount>& from_values) {
    if (from.sum == 0) return;
    // Same formula as Merge() of softmax_state.h, but with fixed rounding: kernels that join the same parts get the
    // same bits.
    const float max = state.max > from.max ? state.max : from.max;
    const float into = simt::Exp2(state.max - max), weight = simt::Exp2(from.max - max);
    state = {max, __builtin_fmaf(state.sum, into, from.sum * weight)};
    AddValues(into, weight, from_values);
  }

  // Scales the values by `into` and adds from_values times `weight`.
  QUIRE_DEVICE void AddValues(float into, float weight, const Floats<kCount>& from_values) {
    QUIRE_UNROLL for (int i = 0; i < kCount; ++i) {
      values.x[i] = __builtin_fmaf(values.x[i], into, from_values.x[i] * weight);
    }
  }

  // Joins the row's partial results at the places [first, first + count). load(values) returns the elements, where
  // `values` are all elements of a partial result.
  template <int kHeadDim, typename F>
  QUIRE_DEVICE void JoinPlaces(const ItemRows& rows, int first, int count, int row, F load) {
    const AttentionArgs& args = rows.args;
    QUIRE_NO_UNROLL for (int p = first; p < first + count; ++p) {
      const int index = rows.Partial(LoadWords(args.places + p), row);
      Join(simt::LoadGlobal(args.partial_states + index), load(args.partial_values + int64_t{index} * kHeadDim));
    }
  }
};

// Loads four consecutive elements.
QUIRE_DEVICE Floats<4> LoadFour(const float* from) {
  return simt::LoadGlobal(reinterpret_cast<const Floats<4>*>(from));
}

// Returns the factor that makes an output of joined values. It is 0 for rows that saw no token. NaN stays NaN, so that
// it is noticed. All kernels multiply by it, and so they get the same bits.
QUIRE_DEVICE float OutputFactor(SoftmaxState state) {
  return state.sum == 0 ? 0 : 1 / state.sum;
}

// Returns the output of a row.
template <int kHeadDim>
QUIRE_DEVICE uint16_t* OutputRow(const ItemRows& rows, int row) {
  const int64_t num_heads = int64_t{rows.args.num_kv_heads} * rows.args.group_size;
  return rows.args.out + (rows.Token(row) * num_heads + rows.Head(row)) * kHeadDim;
}

template <typename Element>
QUIRE_DEVICE void StorePair(uint16_t* to, float low, float high) {
  simt::StoreGlobal(reinterpret_cast<uint32_t*>(to), Element::Pack(low, high));
}

// Stores four consecutive elements of an output, of which only the pairs are aligned.
template <typename Element>
QUIRE_DEVICE void StoreFour(uint16_t* out, const Floats<4>& values, float factor) {
  StorePair<Element>(out, values.x[0] * factor, values.x[1] * factor);
  StorePair<Element>(out + 2, values.x[2] * factor, values.x[3] * factor);
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_JOIN_H_
