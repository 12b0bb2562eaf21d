// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STEP_SAMPLER_H_
#define QUIRE_WORKER_STEP_SAMPLER_H_

#include <array>
#include <cstdint>
#include <memory>
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

// The computation of a step: the layers, and after them the draws of the tokens of sampling slices, or lists of their
// candidates, the scores of prompt tokens, and the hidden states of rows that pool them. It computes the number of rows
// of logits at a time that the transformer has room for. Slices that sample after the same token share a row of logits.
// Two steps may run at the same time. Owned by the executor thread.
class StepSampler {
 public:
  static constexpr int kMaxSteps = 2;

  // Both must outlive the sampler.
  StepSampler(Backend* backend, Transformer* transformer, const WorkerLimits& limits);

  // Queues the work of a step. A token that a row draws is then its pending token. Returns
  // RESOURCE_EXHAUSTED when there is no memory for the answers. REQUIRES: fewer than kMaxSteps steps are begun and not
  // finished; kv_pools is as in Transformer::Forward.
  absl::Status Begin(const StepBatch& batch, const KvLayout& layout, void* const* kv_pools);
  // Finishes the oldest step that was begun: resolves the pending tokens of its rows and fills the columns of the
  // result. A sequence whose logits are not finite fails, and so does each one whose row has failed before: the result
  // has the failure in place of tokens and scores. The result also tells which draws were postponed. REQUIRES:
  // everything that its Begin queued is done.
  void Finish(v1::StepResult* result);
  // Forgets the steps that were begun. REQUIRES: everything that was queued is done.
  void Reset();

 private:
  // A use of one row of logits: a draw, a list of candidates, or the score of a prompt token.
  struct Job {
    SequenceRow* row;
    SequenceId sequence;
    int slice;
    int token_row;  // The index in the token arrays whose logits are read.
    int position;   // The position of that token.
    int num_top;    // As in SamplingRow.
    int num_candidates;
    bool is_sampling;  // Draws a token or lists candidates. If false, this is the score of a prompt token.
  };
  struct Slice {
    SequenceRow* row;
    SequenceId sequence;
    int end_job;       // Index behind its last job; its first job follows the jobs of the slice before.
    bool has_pending;  // The row got a pending token.
    bool is_postponed = false;
    std::shared_ptr<PooledStates> pooled = nullptr;  // Null unless the row pools.
    int end_state = 0;         // Index behind its last hidden state; its first one follows those of the slice before.
    bool is_embedded = false;  // The pooling ends with this slice.
  };
  struct Step {
    explicit Step(Backend* backend)
        : results(backend, "drawn tokens"), top(backend, "lists of tokens"), states(backend, "hidden states") {}

    std::vector<Slice> slices;
    std::vector<Job> jobs;
    bool has_scores = false;            // Whether a row that draws asks for logprobs.
    int max_top = 0;                    // The room for the list of a job.
    HostArray<SamplingResult> results;  // [jobs]
    HostArray<ScoredCandidate> top;     // [jobs, max_top]
    HostArray<float> states;            // [hidden states to pool, hidden_size]
  };

  void CollectJobs(absl::Span<const BatchSlice> slices, Step* step);
  // Finds what the guides of rows that draw allow, as far as the step has work for that.
  void FillGuideMasks(absl::Span<const BatchSlice> slices);
  // Adds the jobs of a slice. A row that has failed has none.
  void CollectPromptJobs(const BatchSlice& slice, int index, Step* step);
  // Adds the token rows whose hidden states a row pools. A row that has failed has none.
  void CollectStates(const BatchSlice& slice, Slice* out);
  // Returns whether the draw is postponed.
  bool CollectDraw(const BatchSlice& slice, int index, Step* step);
  void AddJob(const BatchSlice& slice, int slice_index, int token_row, int position, bool is_sampling,
              const SamplingRow& row, Step* step);
  // Fills token_rows_ and logit_rows_ for the jobs [begin, end). Returns their arguments without logits.
  SamplingArgs Collect(const Step& step, int begin, int end);
  // Adds the hidden states of the slice, of which the first is `first_state`.
  void PoolStates(const Step& step, const Slice& slice, int first_state) const;
  // Adds the embedding of the slice to the result.
  static void AddEmbedding(const Slice& slice, v1::StepResult* result);
  // Returns why the sequence of the slice has failed, or null. Its jobs begin at `first_job`.
  static const RowFailure* FailureOf(const Step& step, const Slice& slice, int first_job, RowFailure* found);
  void FinishJob(const Step& step, int job, v1::StepResult* result);
  static void AddPromptScore(const Step& step, int job, v1::StepResult* result);
  static void AddCandidates(const Step& step, int job, v1::StepResult* result);
  static void AddScore(const Step& step, int job, v1::ScoreColumns* scores);
  // Gives the score to the row, if it keeps scores and its sequence still has the row.
  void KeepScore(const Step& step, int job);

  Backend* const backend_;
  Transformer* const transformer_;
  const int vocab_size_;

  std::array<Step, kMaxSteps> steps_;  // The i-th step is at index i % kMaxSteps.
  uint64_t num_begun_ = 0;
  uint64_t num_finished_ = 0;

  v1::ScoreColumns score_;  // Scratch of KeepScore.

  std::vector<SamplingState*> guided_;  // Scratch of FillGuideMasks.
  // Scratch of Begin. A chunk is the set of jobs whose logits are computed at a time.
  std::vector<SamplingRow> rows_;    // [jobs]
  std::vector<int32_t> token_rows_;  // The token rows of the chunk, without duplicates.
  MarkSet row_marks_;                // The token rows of the chunk. The owner is the index in token_rows_.
  std::vector<int32_t> logit_rows_;  // [jobs of the chunk], the index of the job's token row in token_rows_.
  std::vector<int32_t> state_rows_;  // The token rows whose hidden states are pooled, slice after slice.
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_SAMPLER_H_
