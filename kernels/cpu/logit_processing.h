// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LOGIT_PROCESSING_H_
#define QUIRE_KERNELS_CPU_LOGIT_PROCESSING_H_

#include <limits>
#include <vector>

#include "kernels/sampling.h"

namespace quire::cpu {

// The score of a token that cannot be drawn.
inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Returns whether the row's bias, masks or penalties may change any logit.
bool ChangesLogits(const SamplingRow& row);

// Applies the row's bias and penalties to scores[vocab_size] in place.
void ApplyBiasAndPenalties(const SamplingRow& row, int vocab_size, float* scores);

// Sets scores to -inf for every token outside the row's `allowed`, unless that is empty. `scratch` is overwritten.
void ApplyAllowed(const SamplingRow& row, int vocab_size, std::vector<float>* scratch, float* scores);

// Sets scores to -inf for the tokens in the row's `masked`. Changes nothing if no score above -inf would remain.
void ApplyMasked(const SamplingRow& row, int vocab_size, std::vector<float>* scratch, float* scores);

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LOGIT_PROCESSING_H_
