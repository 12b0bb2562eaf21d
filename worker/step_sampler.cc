#include "worker/step_sampler.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace quire {

StepSampler::StepSampler(Backend* backend, Transformer* transformer, int vocab_size)
    : backend_(backend),
      transformer_(transformer),
      vocab_size_(vocab_size),
      token_rows_(backend, "logit row indices") {}

absl::Status StepSampler::Run(absl::Span<const BatchSlice> slices, v1::StepResult* result) {
  CollectJobs(slices);
  const int num_jobs = static_cast<int>(jobs_.size());
  const int chunk = transformer_->limits().max_logit_rows;
  for (int begin = 0; begin < num_jobs; begin += chunk) {
    const int end = std::min(begin + chunk, num_jobs);
    QUIRE_RETURN_IF_ERROR(Compute(begin, end));
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
        jobs_.push_back({i, slice.first_token + position - slice.first_position, false});
        rows_.push_back(row.sampling().Score(row.tokens()[position + 1]));
      }
    }
    if (slice.samples) {
      jobs_.push_back({i, slice.first_token + slice.num_tokens - 1, true});
      rows_.push_back(row.sampling().Draw(row.tokens()));
      has_scores_ |= row.sampling().num_top() >= 0;
    }
  }
}

absl::Status StepSampler::Compute(int begin, int end) {
  const int num_rows = end - begin;
  token_rows_.host().clear();
  max_top_ = 0;
  for (int i = begin; i < end; ++i) {
    token_rows_.host().push_back(jobs_[i].token_row);
    max_top_ = std::max(max_top_, rows_[i].num_top);
  }
  QUIRE_RETURN_IF_ERROR(token_rows_.Upload());
  results_.resize(num_rows);
  top_.resize(size_t(num_rows) * max_top_);
  SamplingArgs args{};
  args.logits = transformer_->Logits(token_rows_.data(), num_rows);
  args.num_rows = num_rows;
  args.vocab_size = vocab_size_;
  args.rows = rows_.data() + begin;
  args.results = results_.data();
  args.top = max_top_ == 0 ? nullptr : top_.data();
  args.max_top = max_top_;
  backend_->Sample(args);
  return absl::OkStatus();
}

absl::Status StepSampler::Deliver(absl::Span<const BatchSlice> slices, int begin, int end, v1::StepResult* result) {
  for (int i = begin; i < end; ++i) {
    const Job& job = jobs_[i];
    const BatchSlice& slice = slices[job.slice];
    const SamplingResult& drawn = results_[i - begin];
    if (drawn.token < 0) {
      return absl::InternalError(absl::StrCat("logits of sequence ", Value(slice.row->sequence()), " after position ",
                                              slice.first_position + job.token_row - slice.first_token,
                                              " are not finite"));
    }
    if (!job.draws) {
      const int n = result->prompt_scores_size();
      const bool is_new = n == 0 || result->prompt_scores(n - 1).slice() != static_cast<uint32_t>(job.slice);
      v1::PromptScores* scores = is_new ? result->add_prompt_scores() : result->mutable_prompt_scores(n - 1);
      scores->set_slice(job.slice);
      AddScore(i, i - begin, scores->mutable_scores());
      continue;
    }
    result->add_token_ids(drawn.token);
    if (has_scores_) AddScore(i, i - begin, result->mutable_scores());
    slice.row->Append(drawn.token);
  }
  return absl::OkStatus();
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
