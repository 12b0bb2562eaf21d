// SPDX-License-Identifier: Apache-2.0

#include "worker/step_sampler.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

// The lengths of lists of tokens that a step can have. A device records steps for each length, so there are few. 1, 5
// and 20 are what most requests ask for.
constexpr int kListLengths[] = {0, 1, 5, 20, 80, 320, 1024};

// Returns the shortest length that has room for `max_top` tokens.
int ListLength(int max_top) {
  static_assert(std::end(kListLengths)[-1] == kMaxCandidates && kMaxTopLogprobs == kMaxCandidates);
  return *std::lower_bound(std::begin(kListLengths), std::end(kListLengths), max_top);
}

v1::SequenceFailureReason ReasonOf(const absl::Status& guide) {
  return absl::IsResourceExhausted(guide) ? v1::SEQUENCE_FAILURE_REASON_GUIDE_TOO_EXPENSIVE
                                          : v1::SEQUENCE_FAILURE_REASON_UNSPECIFIED;
}

}  // namespace

StepSampler::StepSampler(Backend* backend, Transformer* transformer, const WorkerLimits& limits)
    : backend_(backend),
      transformer_(transformer),
      vocab_size_(limits.vocab_size),
      steps_{Step(backend), Step(backend)},
      row_marks_(limits.max_tokens_per_step) {
  if (backend_->IsAsynchronous()) backend_->KeepDrawnTokens(limits.max_sequences);
}

absl::Status StepSampler::Begin(const StepBatch& batch, const KvLayout& layout, void* const* kv_pools) {
  QUIRE_CHECK_LT(num_begun_ - num_finished_, uint64_t{kMaxSteps});
  Step& step = steps_[num_begun_ % kMaxSteps];
  CollectJobs(batch.slices(), &step);
  const int num_jobs = static_cast<int>(step.jobs.size());
  QUIRE_RETURN_IF_ERROR(step.results.Reserve(num_jobs));
  QUIRE_RETURN_IF_ERROR(step.top.Reserve(size_t(num_jobs) * step.max_top));
  QUIRE_RETURN_IF_ERROR(step.states.Reserve(state_rows_.size() * static_cast<size_t>(transformer_->hidden_size())));
  ++num_begun_;
  const absl::Span<const BatchView> views = batch.views();
  if (views[0].num_tokens == 0) return absl::OkStatus();  // All slices have come too early.
  const int chunk = transformer_->limits().max_logit_rows;
  if (num_jobs > 0 && num_jobs <= chunk && state_rows_.empty()) {
    const SamplingArgs args = Collect(step, 0, num_jobs);
    transformer_->ForwardAndSample(views, layout, kv_pools, token_rows_.data(), static_cast<int>(token_rows_.size()),
                                   args);
    return absl::OkStatus();
  }
  transformer_->Forward(views, layout, kv_pools);
  for (int begin = 0; begin < num_jobs; begin += chunk) {
    const SamplingArgs args = Collect(step, begin, std::min(begin + chunk, num_jobs));
    transformer_->LogitsAndSample(token_rows_.data(), static_cast<int>(token_rows_.size()), args);
  }
  transformer_->ReadHiddenStates(state_rows_.data(), static_cast<int>(state_rows_.size()), step.states.data());
  return absl::OkStatus();
}

void StepSampler::CollectJobs(absl::Span<const BatchSlice> slices, Step* step) {
  step->slices.clear();
  step->jobs.clear();
  step->has_scores = false;
  step->max_top = 0;
  rows_.clear();
  state_rows_.clear();
  FillGuideMasks(slices);
  for (int i = 0; i < static_cast<int>(slices.size()); ++i) {
    SequenceRow& row = *slices[i].row;
    const int num_pending = row.num_pending();
    CollectPromptJobs(slices[i], i, step);
    const bool draws = slices[i].is_sampling && row.pooled() == nullptr;
    const bool is_postponed = draws && CollectDraw(slices[i], i, step);
    step->slices.push_back({.row = &row,
                            .sequence = row.sequence(),
                            .end_job = static_cast<int>(step->jobs.size()),
                            .has_pending = row.num_pending() > num_pending,
                            .is_postponed = is_postponed});
    CollectStates(slices[i], &step->slices.back());
  }
  step->max_top = ListLength(step->max_top);
}

void StepSampler::FillGuideMasks(absl::Span<const BatchSlice> slices) {
  guided_.clear();
  for (const BatchSlice& slice : slices) {
    SamplingState& sampling = slice.row->sampling();
    if (slice.is_sampling && !slice.is_early && slice.row->failure() == nullptr && sampling.guide() != nullptr) {
      guided_.push_back(&sampling);
    }
  }
  std::stable_sort(guided_.begin(), guided_.end(), [](const SamplingState* a, const SamplingState* b) {
    return a->guide()->turn() < b->guide()->turn();
  });
  for (SamplingState* const sampling : guided_) sampling->FillGuideMask().IgnoreError();  // CollectDraw looks at it.
}

void StepSampler::CollectPromptJobs(const BatchSlice& slice, int index, Step* step) {
  const SequenceRow& row = *slice.row;
  if (row.failure() != nullptr || row.sampling().num_prompt_top() < 0) return;
  // The logits at position p score the token at position p + 1.
  const int end = std::min(slice.end_position(), row.prompt_length() - 1);
  for (int position = slice.first_position; position < end; ++position) {
    AddJob(slice, index, slice.first_token + position - slice.first_position, position, /*is_sampling=*/false,
           row.sampling().Score(row.tokens()[position + 1]), step);
  }
}

void StepSampler::CollectStates(const BatchSlice& slice, Slice* out) {
  const SequenceRow& row = *slice.row;
  if (row.pooled() != nullptr && row.failure() == nullptr) {
    out->pooled = row.pooled();
    out->is_embedded = slice.is_sampling;
    if (row.pooling() == v1::POOLING_KIND_MEAN) {
      for (int i = 0; i < slice.num_tokens; ++i) state_rows_.push_back(slice.first_token + i);
    } else if (row.pooling() == v1::POOLING_KIND_FIRST_TOKEN) {
      if (slice.first_position == 0) state_rows_.push_back(slice.first_token);
    } else if (slice.is_sampling) {
      state_rows_.push_back(slice.last_token);
    }
  }
  out->end_state = static_cast<int>(state_rows_.size());
}

bool StepSampler::CollectDraw(const BatchSlice& slice, int index, Step* step) {
  SequenceRow& row = *slice.row;
  const absl::Status& guide = row.sampling().guide_status();
  if (row.failure() == nullptr && (slice.is_early || absl::IsUnavailable(guide))) {
    row.PostponeDraw();
    return true;
  }
  if (!guide.ok() && !absl::IsUnavailable(guide)) row.Fail({ReasonOf(guide), std::string(guide.message())});
  if (row.failure() != nullptr) {
    // The next plan counts on a token.
    if (row.sampling().num_candidates() == 0) row.AppendPending();
    return false;
  }
  SamplingRow draw = row.sampling().Draw(row.tokens());
  if (draw.num_candidates == 0) {
    draw.drawn_place = slice.row_index;
    if (row.num_pending() > 0) draw.pending_place = slice.row_index;
    row.AppendPending();
  }
  AddJob(slice, index, slice.last_token, slice.end_position() - 1, /*is_sampling=*/true, draw, step);
  step->has_scores |= row.sampling().num_top() >= 0;
  return false;
}

void StepSampler::AddJob(const BatchSlice& slice, int slice_index, int token_row, int position, bool is_sampling,
                         const SamplingRow& row, Step* step) {
  step->jobs.push_back({.row = slice.row,
                        .sequence = slice.row->sequence(),
                        .slice = slice_index,
                        .token_row = token_row,
                        .position = position,
                        .num_top = row.num_top,
                        .num_candidates = row.num_candidates,
                        .is_sampling = is_sampling});
  step->max_top = std::max({step->max_top, row.num_top, row.num_candidates});
  rows_.push_back(row);
}

SamplingArgs StepSampler::Collect(const Step& step, int begin, int end) {
  token_rows_.clear();
  row_marks_.Clear();
  logit_rows_.clear();
  for (int i = begin; i < end; ++i) {
    const int token_row = step.jobs[i].token_row;
    if (row_marks_.Mark(token_row, token_rows_.size())) token_rows_.push_back(token_row);
    logit_rows_.push_back(static_cast<int32_t>(row_marks_.Owner(token_row)));
  }
  SamplingArgs args{};
  args.logit_rows = logit_rows_.data();
  args.num_rows = end - begin;
  args.vocab_size = vocab_size_;
  args.rows = rows_.data() + begin;
  args.results = step.results.data() + begin;
  args.top = step.max_top == 0 ? nullptr : step.top.data() + size_t(begin) * step.max_top;
  args.max_top = step.max_top;
  return args;
}

void StepSampler::Finish(v1::StepResult* result) {
  const Step& step = steps_[num_finished_ % kMaxSteps];
  ++num_finished_;
  int job = 0;
  int state = 0;
  for (size_t i = 0; i < step.slices.size(); ++i) {
    const Slice& slice = step.slices[i];
    PoolStates(step, slice, std::exchange(state, slice.end_state));
    RowFailure found;
    if (const RowFailure* const failure = FailureOf(step, slice, job, &found); failure != nullptr) {
      v1::SequenceFailure* const out = result->add_failures();
      out->set_slice(static_cast<uint32_t>(i));
      out->set_sequence(Value(slice.sequence));
      out->set_reason(failure->reason);
      out->set_message(failure->message.substr(0, kMaxFailureMessageBytes));
      if (slice.has_pending) slice.row->Resolve(0);
      job = slice.end_job;
    } else if (slice.is_postponed) {
      result->add_postponed_slices(static_cast<uint32_t>(i));
    } else if (slice.is_embedded) {
      AddEmbedding(slice, result);
    }
    for (; job < slice.end_job; ++job) FinishJob(step, job, result);
  }
}

// The row may belong to another sequence by now, if nothing was pending.
const RowFailure* StepSampler::FailureOf(const Step& step, const Slice& slice, int first_job, RowFailure* found) {
  const bool has_row = slice.row->sequence() == slice.sequence;
  if (has_row && slice.row->failure() != nullptr) return slice.row->failure();
  for (int job = first_job; job < slice.end_job; ++job) {
    if (step.results[job].token >= 0) continue;
    *found = {v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE,
              absl::StrCat("the logits after position ", step.jobs[job].position, " are not finite")};
    if (has_row) slice.row->Fail(*found);
    return found;
  }
  if (!slice.is_embedded) return nullptr;
  const std::vector<float>& sum = slice.pooled->sum;
  if (std::all_of(sum.begin(), sum.end(), [](float value) { return std::isfinite(value); })) return nullptr;
  *found = {v1::SEQUENCE_FAILURE_REASON_LOGITS_NOT_FINITE, "the pooled hidden states are not finite"};
  if (has_row) slice.row->Fail(*found);
  return found;
}

void StepSampler::PoolStates(const Step& step, const Slice& slice, int first_state) const {
  const auto size = static_cast<size_t>(transformer_->hidden_size());
  for (int i = first_state; i < slice.end_state; ++i) {
    const float* const state = step.states.data() + static_cast<size_t>(i) * size;
    slice.pooled->sum.resize(size);
    for (size_t k = 0; k < size; ++k) slice.pooled->sum[k] += state[k];
    ++slice.pooled->num_states;
  }
}

void StepSampler::AddEmbedding(const Slice& slice, v1::StepResult* result) {
  const auto count = static_cast<float>(slice.pooled->num_states);
  for (const float value : slice.pooled->sum) result->add_embeddings(value / count);
}

void StepSampler::FinishJob(const Step& step, int index, v1::StepResult* result) {
  const Job& job = step.jobs[index];
  if (!job.is_sampling) {
    AddPromptScore(step, index, result);
    KeepScore(step, index);
  } else if (job.num_candidates > 0) {
    AddCandidates(step, index, result);
  } else {
    const TokenId token = step.results[index].token;
    result->add_token_ids(token);
    if (step.has_scores) AddScore(step, index, result->mutable_scores());
    KeepScore(step, index);
    job.row->Resolve(token);
  }
}

void StepSampler::Reset() {
  num_finished_ = num_begun_;
}

void StepSampler::AddPromptScore(const Step& step, int job, v1::StepResult* result) {
  const uint32_t slice = static_cast<uint32_t>(step.jobs[job].slice);
  const int n = result->prompt_scores_size();
  const bool is_new = n == 0 || result->prompt_scores(n - 1).slice() != slice;
  v1::PromptScores* scores = is_new ? result->add_prompt_scores() : result->mutable_prompt_scores(n - 1);
  scores->set_slice(slice);
  AddScore(step, job, scores->mutable_scores());
}

void StepSampler::AddCandidates(const Step& step, int job, v1::StepResult* result) {
  const ScoredCandidate* candidates = step.top.data() + size_t(job) * step.max_top;
  int length = 0;
  while (length < step.jobs[job].num_candidates && candidates[length].token >= 0) {
    result->add_candidate_token_ids(candidates[length].token);
    result->add_candidate_logprobs(candidates[length].logprob);
    ++length;
  }
  result->add_candidate_lengths(length);
}

// It is called before the token is resolved.
void StepSampler::KeepScore(const Step& step, int job_index) {
  const Job& job = step.jobs[job_index];
  SequenceRow& row = *job.row;
  if (job.num_top < 0 || !row.keeps_scores() || row.sequence() != job.sequence) return;
  score_.Clear();
  AddScore(step, job_index, &score_);
  if (job.is_sampling) {
    row.KeepScore(job.position + 1 - row.prompt_length(), score_);
  } else {
    row.KeepPromptScore(job.position + 1, score_);
  }
}

void StepSampler::AddScore(const Step& step, int job, v1::ScoreColumns* scores) {
  const int num_top = step.jobs[job].num_top;
  const SamplingResult& result = step.results[job];
  scores->add_logprobs(num_top < 0 ? 0 : result.logprob);
  scores->add_ranks(num_top < 0 ? 0 : result.rank);
  scores->add_top_lengths(std::max(num_top, 0));
  for (int k = 0; k < num_top; ++k) {
    const ScoredCandidate& candidate = step.top[size_t(job) * step.max_top + k];
    scores->add_top_token_ids(candidate.token);
    scores->add_top_logprobs(candidate.logprob);
  }
}

}  // namespace quire
