// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_EXPERTS_H_
#define QUIRE_KERNELS_CPU_EXPERTS_H_

#include <cstdint>
#include <vector>

#include "kernels/cpu/linear.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/experts.h"

namespace quire::cpu {

// Mixtures of experts on all threads of a thread pool. The rows of an expert are gathered and multiplied by its
// matrices together, so that each expert that is used is read once. Owned by the executor thread.
class CpuExperts {
 public:
  // All pointers must stay valid while the object exists.
  CpuExperts(const KernelTable* kernels, ThreadPool* pool, CpuLinear* linear)
      : kernels_(*kernels), pool_(pool), linear_(*linear) {}

  void Route(const RouteArgs& args);
  // REQUIRES: CpuPackedMatrix made the matrices; activations are float32. Throws std::bad_alloc, as containers do, when
  // there is no memory for the rows of experts.
  void Run(const ExpertMlpArgs& args);

 private:
  // Memory of a thread for the choice of a token.
  struct Choice {
    std::vector<float> scores;   // [num_experts]
    std::vector<float> choices;  // [num_experts], scores for the choice.
    std::vector<float> groups;   // [num_groups]
    std::vector<int32_t> best_groups;
    std::vector<float> best;  // Of the chosen ones, for SelectBest.
  };
  void RouteToken(const RouteArgs& args, int token, Choice* choice) const;

  // Runs some tokens, whose rows fit into the memory for rows.
  void RunTokens(const ExpertMlpArgs& args, int first_token, int num_tokens);
  // Sorts the pairs of a token and one of its experts by expert, and makes the groups of the experts that have rows.
  // Pairs whose expert belongs to another rank are left out. Returns the number of the others.
  int SortPairs(const ExpertMlpArgs& args, const int32_t* experts, int num_pairs);
  // Makes the input rows of the sorted pairs, in the type that the experts take.
  void GatherInput(const ExpertMlpArgs& args, const float* x, int num_rows);
  void AddOutputs(const ExpertMlpArgs& args, int first_token, int num_tokens);

  const KernelTable& kernels_;
  ThreadPool* const pool_;
  CpuLinear& linear_;
  std::vector<Choice> choices_;  // An entry for each thread.
  // Of the tokens that run. A pair is a token and one of its experts, in the order of ExpertMlpArgs::experts. Its row
  // is its place in the order of experts. Pairs that are left out have no row.
  std::vector<int> starts_;                          // [num_experts + 1], the first row of each expert.
  std::vector<int> row_of_pair_;                     // [num_tokens * top_k]
  std::vector<int> token_of_row_;                    // [rows]
  std::vector<CpuLinear::RowGroup> gate_up_groups_;  // Experts that have rows.
  std::vector<CpuLinear::RowGroup> down_groups_;
  std::vector<std::vector<const float*>> output_rows_;  // [thread][top_k]
  std::vector<std::vector<float>> output_weights_;      // [thread][top_k]
  std::vector<std::vector<uint8_t>> output_ranges_;     // [thread][top_k]
  Memory input_;                                        // [row, dim] in the input type of gate_up.
  Memory gated_;                                        // [row, width] in the input type of down.
  Memory outputs_;                                      // [row, dim] float32.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_EXPERTS_H_
