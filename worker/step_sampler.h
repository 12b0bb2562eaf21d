#ifndef QUIRE_WORKER_STEP_SAMPLER_H_
#define QUIRE_WORKER_STEP_SAMPLER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kernels/backend.h"
#include "quire/v1/worker.pb.h"
#include "worker/host_array.h"
#include "worker/mark_set.h"
#include "worker/model/transformer.h"
#include "worker/step_batch.h"
#include "worker/worker_limits.h"

namespace quire {

// The end of a step: draws the tokens of sampling slices or lists their candidates, and scores prompt tokens, from the
// hidden states of the last Forward, as many rows of logits at a time as the transformer has room for. Slices that
// sample after the same token share its row of logits. Two steps may be under way. Owned by the executor thread.
class StepSampler {
 public:
  static constexpr int kMaxSteps = 2;

  // Both must outlive the sampler.
  StepSampler(Backend* backend, Transformer* transformer, const WorkerLimits& limits);

  // Queues it all. Rows that draw a token have it pending. RESOURCE_EXHAUSTED when there is no memory for the answers.
  // REQUIRES: fewer than kMaxSteps steps were begun and not finished.
  absl::Status Begin(absl::Span<const BatchSlice> slices);
  // Of the oldest step that was begun: gives the rows their tokens and fills the result's columns. INTERNAL when logits
  // are not numbers; the result is then good for nothing. REQUIRES: all that its Begin queued is done.
  absl::Status Finish(v1::StepResult* result);
  // Forgets the steps that were begun. REQUIRES: all that was queued is done.
  void Reset();

 private:
  // What is asked of one row of logits: a draw, candidates, or the score of a prompt token.
  struct Job {
    SequenceRow* row;
    SequenceId sequence;
    int slice;
    int token_row;  // Row of the token arrays whose logits are read.
    int position;   // Of that token.
    int num_top;    // As in SamplingRow.
    int num_candidates;
    bool samples;
  };
  struct Step {
    explicit Step(Backend* backend) : results(backend, "drawn tokens"), top(backend, "lists of tokens") {}

    std::vector<Job> jobs;
    bool has_scores = false;            // A drawing row of the step asks for logprobs.
    int max_top = 0;                    // Longest list of a job.
    HostArray<SamplingResult> results;  // [jobs]
    HostArray<ScoredCandidate> top;     // [jobs, max_top]
  };

  void CollectJobs(absl::Span<const BatchSlice> slices, Step* step);
  void AddJob(const BatchSlice& slice, int slice_index, int token_row, int position, bool samples,
              const SamplingRow& row, Step* step);
  // Queues jobs [begin, end).
  void Compute(const Step& step, int begin, int end);
  static void AddPromptScore(const Step& step, int job, v1::StepResult* result);
  static void AddCandidates(const Step& step, int job, v1::StepResult* result);
  static void AddScore(const Step& step, int job, v1::ScoreColumns* scores);

  Backend* const backend_;
  Transformer* const transformer_;
  const int vocab_size_;

  std::array<Step, kMaxSteps> steps_;  // Step i from the beginning is in place i % kMaxSteps.
  uint64_t num_begun_ = 0;
  uint64_t num_finished_ = 0;

  // Of Begin.
  std::vector<SamplingRow> rows_;    // [jobs]
  std::vector<int32_t> token_rows_;  // Of the chunk: whose logits are computed, each once.
  MarkSet row_marks_;                // Token rows; the owner is the index in token_rows_.
  std::vector<int32_t> logit_rows_;  // [jobs of the chunk], index in token_rows_.
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_SAMPLER_H_
