// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_REFERENCE_SAMPLING_H_
#define QUIRE_KERNELS_REFERENCE_SAMPLING_H_

#include <vector>

#include "kernels/sampling.h"

// The steps of kernels/sampling.h in double, by sorting everything. Only tests use it.
namespace quire::reference {

// Returns the distribution from which the row draws. Temperature 0 gives all mass to one token.
std::vector<double> Probabilities(const SamplingRow& row, const std::vector<float>& logits);

// Returns the log softmax of the logits.
std::vector<double> Logprobs(const std::vector<float>& logits);

// The answer of a row with num_candidates: ids, best first, and their processed logprobs.
struct Candidates {
  std::vector<int> tokens;
  std::vector<double> logprobs;
};
Candidates ListCandidates(const SamplingRow& row, const std::vector<float>& logits);

// Returns all ids by falling value, equal values by id.
std::vector<int> Ranking(const std::vector<double>& values);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_SAMPLING_H_
