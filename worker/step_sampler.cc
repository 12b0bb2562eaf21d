#include "worker/step_sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {

StepSampler::StepSampler(Backend* backend, Transformer* transformer, const WorkerLimits& limits)
    : backend_(backend),
      transformer_(transformer),
      vocab_size_(limits.vocab_size),
      row_marks_(limits.max_tokens_per_step) {}

absl::Status StepSampler::Run(absl::Span<const BatchSlice> slices, v1::StepResult* result) {
  CollectJobs(slices);
  const int num_jobs = static_cast<int>(jobs_.size());
  const int chunk = transformer_->limits().max_logit_rows;
  for (int begin = 0; begin < num_jobs; begin += chunk) {
    const int end = std::min(begin + chunk, num_jobs);
    Compute(begin, end);
    QUIRE_RETURN_IF_ERROR(Deliver(slices, begin, end, result));
  }
  return absl::OkStatus();
}

void StepSampler::CollectJobs(absl::Span<const BatchSlice> slices) {
  jobs_.clear();
  rows_.clear();
  has_scores_ = false;
  for (int i = 0; i < static_cast<int>(slices.size()); ++i) {
    const BatchSlice& slice = slices[i];
    SequenceRow& row = *slice.row;
    if (row.sampling().num_prompt_top() >= 0) {
      // The logits after position p score the token at p + 1.
      const int end = std::min(slice.end_position(), row.prompt_length() - 1);
      for (int position = slice.first_position; position < end; ++position) {
        jobs_.push_back({i, slice.first_token + position - slice.first_position, position, false});
        rows_.push_back(row.sampling().Score(row.tokens()[position + 1]));
      }
    }
    if (slice.samples) {
      jobs_.push_back({i, slice.last_token, slice.end_position() - 1, true});
      rows_.push_back(row.sampling().Draw(row.tokens()));
      has_scores_ |= row.sampling().num_top() >= 0;
    }
  }
}

void StepSampler::Compute(int begin, int end) {
  const int num_jobs = end - begin;
  token_rows_.clear();
  row_marks_.Clear();
  logit_rows_.clear();
  max_top_ = 0;
  for (int i = begin; i < end; ++i) {
    const int token_row = jobs_[i].token_row;
    if (row_marks_.Mark(token_row, token_rows_.size())) token_rows_.push_back(token_row);
    logit_rows_.push_back(static_cast<int32_t>(row_marks_.Owner(token_row)));
    max_top_ = std::max({max_top_, rows_[i].num_top, rows_[i].num_candidates});
  }
  results_.resize(num_jobs);
  top_.resize(size_t(num_jobs) * max_top_);
  SamplingArgs args{};
  args.logits = transformer_->Logits(token_rows_.data(), static_cast<int>(token_rows_.size()));
  args.logit_rows = logit_rows_.data();
  args.num_rows = num_jobs;
  args.vocab_size = vocab_size_;
  args.rows = rows_.data() + begin;
  args.results = results_.data();
  args.top = max_top_ == 0 ? nullptr : top_.data();
  args.max_top = max_top_;
  backend_->Sample(args);
}

absl::Status StepSampler::Deliver(absl::Span<const BatchSlice> slices, int begin, int end, v1::StepResult* result) {
  for (int i = begin; i < end; ++i) {
    const Job& job = jobs_[i];
    const BatchSlice& slice = slices[job.slice];
    const SamplingResult& drawn = results_[i - begin];
    if (drawn.token < 0) {
      return absl::InternalError(absl::StrCat("logits of sequence ", Value(slice.row->sequence()), " after position ",
                                              job.position, " are not finite"));
    }
    if (!job.samples) {
      AddPromptScore(i, i - begin, result);
    } else if (rows_[i].num_candidates > 0) {
      AddCandidates(i, i - begin, result);
    } else {
      result->add_token_ids(drawn.token);
      if (has_scores_) AddScore(i, i - begin, result->mutable_scores());
      slice.row->Append(drawn.token);
    }
  }
  return absl::OkStatus();
}

void StepSampler::AddPromptScore(int job, int job_in_chunk, v1::StepResult* result) const {
  const uint32_t slice = static_cast<uint32_t>(jobs_[job].slice);
  const int n = result->prompt_scores_size();
  const bool is_new = n == 0 || result->prompt_scores(n - 1).slice() != slice;
  v1::PromptScores* scores = is_new ? result->add_prompt_scores() : result->mutable_prompt_scores(n - 1);
  scores->set_slice(slice);
  AddScore(job, job_in_chunk, scores->mutable_scores());
}

void StepSampler::AddCandidates(int job, int job_in_chunk, v1::StepResult* result) const {
  const ScoredCandidate* candidates = &top_[size_t(job_in_chunk) * max_top_];
  int length = 0;
  while (length < rows_[job].num_candidates && candidates[length].token >= 0) {
    result->add_candidate_token_ids(candidates[length].token);
    result->add_candidate_logprobs(candidates[length].logprob);
    ++length;
  }
  result->add_candidate_lengths(length);
}

void StepSampler::AddScore(int job, int job_in_chunk, v1::ScoreColumns* scores) const {
  const int num_top = rows_[job].num_top;
  const SamplingResult& result = results_[job_in_chunk];
  scores->add_logprobs(num_top < 0 ? 0 : result.logprob);
  scores->add_ranks(num_top < 0 ? 0 : result.rank);
  scores->add_top_lengths(std::max(num_top, 0));
  for (int k = 0; k < num_top; ++k) {
    const ScoredCandidate& candidate = top_[size_t(job_in_chunk) * max_top_ + k];
    scores->add_top_token_ids(candidate.token);
    scores->add_top_logprobs(candidate.logprob);
  }
}

}  // namespace quire
