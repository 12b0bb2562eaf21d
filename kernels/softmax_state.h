// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SOFTMAX_STATE_H_
#define QUIRE_KERNELS_SOFTMAX_STATE_H_

// Device code needs these attributes of the CUDA compiler.
#if defined(__CUDACC__)
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif

namespace quire {

// The part of a softmax over a set of tokens that is needed to join it with the softmax over a disjoint set: the
// largest score and the sum of exp(score - max). The third part, the sum of exp(score - max) * v, is a vector that is
// stored elsewhere. An empty set has max = -inf, sum = 0 and a vector of zeros. (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018.)
struct SoftmaxState {
  float max;
  float sum;
};

// Factors for the two vectors, to be applied before they are added.
struct MergeWeights {
  float into;
  float from;
};

// Joins `from`, which must not be empty, to `*into`. If `*into` is empty, the result is exactly `from`.
template <typename ExpFunction>
QUIRE_HOST_DEVICE inline MergeWeights Merge(SoftmaxState* into, SoftmaxState from, ExpFunction exp) {
  const float max = into->max > from.max ? into->max : from.max;
  const MergeWeights weights = {exp(into->max - max), exp(from.max - max)};
  into->max = max;
  into->sum = into->sum * weights.into + from.sum * weights.from;
  return weights;
}

}  // namespace quire

#endif  // QUIRE_KERNELS_SOFTMAX_STATE_H_
