// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_SAMPLING_H_
#define QUIRE_KERNELS_CPU_SAMPLING_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/best_tokens.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/sampling.h"

namespace quire::cpu {

// Draws and scores tokens, one row per thread at a time. No row is sorted as a whole: thresholds first narrow the
// vocabulary to a few candidates. Scratch memory is kept between calls. Owned by the executor thread.
class CpuSampler {
 public:
  // Both arguments must outlive this object.
  CpuSampler(const KernelTable* kernels, ThreadPool* pool);

  void Run(const SamplingArgs& args);

 private:
  // Memory that one thread needs for a row.
  struct Scratch {
    std::vector<float> scores;     // [vocab_size] processed logits.
    std::vector<float> weights;    // [vocab_size] exp(scores).
    std::vector<float> chunk_max;  // [vocab_size / 64]
    std::vector<int32_t> tokens;   // [vocab_size] candidates.
    std::vector<float> kept;       // Scores of the candidates, or of all tokens with -inf for the others.
    std::vector<double> masses;    // Masses of the buckets of top-p.
    std::vector<int32_t> certain;  // Candidates in the buckets before the last one.
    BestTokens best;
  };

  void RunRow(const SamplingArgs& args, int row, Scratch* scratch);
  int32_t Draw(const SamplingRow& row, const float* logits, int vocab_size, Scratch* scratch);
  // Writes the row's candidates to `top` and returns their number. `max` is the largest logit.
  int ListCandidates(const SamplingRow& row, const float* logits, int vocab_size, float max, ScoredCandidate* top,
                     Scratch* scratch);
  void KeepTopP(const SamplingRow& row, int vocab_size, bool has_candidates, Scratch* scratch);
  int32_t DrawFromCandidates(const SamplingRow& row, int vocab_size, Scratch* scratch);
  int Gumbel(const SamplingRow& row, const std::vector<float>& scores, const int32_t* tokens, int best_score) const;
  // Selects the k best entries of x; equal values count by id. Fewer when x has fewer above -inf.
  void SelectTop(const float* x, int vocab_size, int k, Scratch* scratch);
  // The same in order: falling value, equal values by id. It is for a few entries, because it sorts them.
  void ListTop(const float* x, int vocab_size, int k, Scratch* scratch);

  const KernelTable* const kernels_;
  ThreadPool* const pool_;
  std::vector<Scratch> scratch_;  // One per thread.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_SAMPLING_H_
