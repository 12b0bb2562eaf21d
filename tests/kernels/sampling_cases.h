// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_SAMPLING_CASES_H_
#define QUIRE_TESTS_KERNELS_SAMPLING_CASES_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kernels/sampling.h"

// Checks of sampling that every backend must pass. The tests of the CPU and of GPUs call them with their own way to
// sample. Each check records its failures as expectations of googletest.

namespace quire {

struct Sampled {
  std::vector<SamplingResult> results;  // [rows]
  std::vector<ScoredCandidate> top;     // [rows, max_top]
};

// Samples once for each row. All rows read the same logits.
using SampleFunction =
    std::function<Sampled(const std::vector<SamplingRow>& rows, const std::vector<float>& logits, int max_top)>;

int32_t SampleOne(const SampleFunction& sample, const SamplingRow& row, const std::vector<float>& logits);
// Returns the candidates of one row. REQUIRES: row.num_candidates > 0.
std::vector<ScoredCandidate> ListCandidatesOf(const SampleFunction& sample, const SamplingRow& row,
                                              const std::vector<float>& logits);

void CheckTopNSigma(const SampleFunction& sample);
void CheckXtc(const SampleFunction& sample);
void CheckGreedy(const SampleFunction& sample);
void CheckPenalties(const SampleFunction& sample);
void CheckRowsWithNothingLeft(const SampleFunction& sample);
void CheckExtremeParameters(const SampleFunction& sample);
void CheckLogprobsRankAndTop(const SampleFunction& sample);
void CheckCandidates(const SampleFunction& sample, int num_cases);
void CheckCandidatesAmongEqualLogprobs(const SampleFunction& sample, int num_cases);
void CheckPenaltiesOfCandidates(const SampleFunction& sample);
void CheckExtremeLogits(const SampleFunction& sample);
void CheckInfiniteOrNanLogits(const SampleFunction& sample);
// Draws many rows at once with `together` and each row with `alone`. Both must give the same.
void CheckDrawsDependOnTheirOwnRow(const SampleFunction& together, const SampleFunction& alone, int num_rows);

}  // namespace quire

#endif  // QUIRE_TESTS_KERNELS_SAMPLING_CASES_H_
