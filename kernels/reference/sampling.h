#ifndef QUIRE_KERNELS_REFERENCE_SAMPLING_H_
#define QUIRE_KERNELS_REFERENCE_SAMPLING_H_

#include <vector>

#include "kernels/sampling.h"

// The steps of kernels/sampling.h in double, by sorting everything. Used by tests only.
namespace quire::reference {

// The distribution that the row draws from; temperature 0 gives all mass to one token.
std::vector<double> Probabilities(const SamplingRow& row, const std::vector<float>& logits);

// log softmax of the logits.
std::vector<double> Logprobs(const std::vector<float>& logits);

// What a row with num_candidates lists: ids, best first, and their processed logprobs.
struct Candidates {
  std::vector<int> tokens;
  std::vector<double> logprobs;
};
Candidates ListCandidates(const SamplingRow& row, const std::vector<float>& logits);

// All ids by falling value, equal values by id.
std::vector<int> Ranking(const std::vector<double>& values);

}  // namespace quire::reference

#endif  // QUIRE_KERNELS_REFERENCE_SAMPLING_H_
