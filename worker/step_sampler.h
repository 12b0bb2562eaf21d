#ifndef QUIRE_WORKER_STEP_SAMPLER_H_
#define QUIRE_WORKER_STEP_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "quire/v1/worker.pb.h"
#include "worker/mark_set.h"
#include "worker/model/transformer.h"
#include "worker/step_batch.h"
#include "worker/worker_limits.h"

namespace quire {

// The end of a step: draws the tokens of sampling slices or lists their candidates, and scores prompt tokens, from the
// hidden states of the last Forward, as many rows of logits at a time as the transformer has room for. Slices that
// sample after the same token share its row of logits. Owned by the executor thread.
class StepSampler {
 public:
  // Both must outlive the sampler.
  StepSampler(Backend* backend, Transformer* transformer, const WorkerLimits& limits);

  // Appends drawn tokens to their rows and fills the result's columns. INTERNAL when logits are not numbers; the result
  // is then good for nothing.
  absl::Status Run(absl::Span<const BatchSlice> slices, v1::StepResult* result);

 private:
  // What is asked of one row of logits: a draw, candidates, or the score of a prompt token.
  struct Job {
    int slice;
    int token_row;  // Row of the token arrays whose logits are read.
    int position;   // Of that token.
    bool samples;
  };

  void CollectJobs(absl::Span<const BatchSlice> slices);
  // Computes jobs [begin, end) into results_ and top_.
  void Compute(int begin, int end);
  absl::Status Deliver(absl::Span<const BatchSlice> slices, int begin, int end, v1::StepResult* result);
  void AddPromptScore(int job, int job_in_chunk, v1::StepResult* result) const;
  void AddCandidates(int job, int job_in_chunk, v1::StepResult* result) const;
  void AddScore(int job, int job_in_chunk, v1::ScoreColumns* scores) const;

  Backend* const backend_;
  Transformer* const transformer_;
  const int vocab_size_;

  std::vector<Job> jobs_;
  std::vector<SamplingRow> rows_;  // [jobs_.size()]
  bool has_scores_ = false;        // A drawing row of the step asks for logprobs.
  // Of the chunk.
  std::vector<int32_t> token_rows_;      // Whose logits are computed, each once.
  MarkSet row_marks_;                    // Token rows; the owner is the index in token_rows_.
  std::vector<int32_t> logit_rows_;      // [jobs], index in token_rows_.
  int max_top_ = 0;                      // Longest list of a job.
  std::vector<SamplingResult> results_;  // [jobs]
  std::vector<ScoredCandidate> top_;     // [jobs, max_top_]
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_SAMPLER_H_
