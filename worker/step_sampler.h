#ifndef QUIRE_WORKER_STEP_SAMPLER_H_
#define QUIRE_WORKER_STEP_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "quire/v1/worker.pb.h"
#include "worker/model/transformer.h"
#include "worker/staged_array.h"
#include "worker/step_batch.h"

namespace quire {

// The end of a step: draws the tokens of sampling slices and scores prompt tokens, from the hidden states of the last
// Forward, as many rows of logits at a time as the transformer has room for. Owned by the executor thread.
class StepSampler {
 public:
  // Both must outlive the sampler.
  StepSampler(Backend* backend, Transformer* transformer, int vocab_size);

  // Appends drawn tokens to their rows and fills the result's columns. INTERNAL when logits are not numbers; the result
  // is then good for nothing.
  absl::Status Run(absl::Span<const BatchSlice> slices, v1::StepResult* result);

 private:
  // One row of logits: a draw, or the score of a prompt token.
  struct Job {
    int slice;
    int token_row;  // Row of the token arrays whose logits are read.
    bool draws;
  };

  void CollectJobs(absl::Span<const BatchSlice> slices);
  // Computes jobs [begin, end) into results_ and top_.
  absl::Status Compute(int begin, int end);
  absl::Status Deliver(absl::Span<const BatchSlice> slices, int begin, int end, v1::StepResult* result);
  void AddScore(int job, int job_in_chunk, v1::ScoreColumns* scores) const;

  Backend* const backend_;
  Transformer* const transformer_;
  const int vocab_size_;

  std::vector<Job> jobs_;
  std::vector<SamplingRow> rows_;  // [jobs_.size()]
  bool has_scores_ = false;        // A drawing row of the step asks for logprobs.
  int max_top_ = 0;                // Of the chunk.
  StagedArray<int32_t> token_rows_;
  std::vector<SamplingResult> results_;  // Of the chunk.
  std::vector<ScoredCandidate> top_;     // Of the chunk, [rows, max_top_].
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_SAMPLER_H_
