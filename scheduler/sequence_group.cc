// SPDX-License-Identifier: Apache-2.0

#include "scheduler/sequence_group.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/request_size.h"

namespace quire {

SequenceGroup::SequenceGroup(Request request, ServiceRank rank, SequenceId sequence)
    : num_to_fork_(request.num_samples - 1), rank_(rank), request_(std::move(request)) {
  for (const Request::ContinuedSample& sample : request_.continued) {
    const SequenceId id{Value(sequence) + sequences_.size()};
    Sequence* const continued = Add(Sequence(id, sample.sample_index, request_.prompt, request_.max_tokens));
    for (const TokenId token : sample.tokens) continued->Append(token);
  }
  if (!sequences_.empty()) {
    OnForked();
    return;
  }
  sequences_.push_back(std::make_unique<Sequence>(sequence, /*sample_index=*/0, request_.prompt, request_.max_tokens));
  if (!request_.beam.has_value()) return;
  beam_search_ = std::make_unique<BeamSearch>(*request_.beam, request_.max_tokens, request_.stop_token_ids,
                                              request_.beam_stop.get());
  request_.sampling.num_candidates = beam_search_->num_candidates();
  sequences_.front()->ShareThePromptOnly();
}

void SequenceGroup::SetGeneration(GenerationId generation) {
  request_.generation = generation;
  const bool has_begun = this->has_begun();
  for (const auto& sequence : sequences_) sequence->ChangeNumerics(has_begun);
}

Sequence* SequenceGroup::Find(SequenceId sequence) const {
  for (const auto& candidate : sequences_) {
    if (candidate->id() == sequence) return candidate.get();
  }
  return nullptr;
}

std::vector<SequenceId> SequenceGroup::SequenceIds() const {
  std::vector<SequenceId> ids;
  for (const auto& sequence : sequences_) ids.push_back(sequence->id());
  return ids;
}

Sequence* SequenceGroup::Add(Sequence sequence) {
  return sequences_.emplace_back(std::make_unique<Sequence>(std::move(sequence))).get();
}

void SequenceGroup::Erase(const Sequence* sequence) {
  const auto is_it = [&](const auto& candidate) { return candidate.get() == sequence; };
  sequences_.erase(std::remove_if(sequences_.begin(), sequences_.end(), is_it), sequences_.end());
}

RowId SequenceGroup::TakeSpareRow() {
  QUIRE_CHECK(!spare_rows_.empty()) << id();
  const RowId row = spare_rows_.front();
  spare_rows_.erase(spare_rows_.begin());
  return row;
}

int64_t SequenceGroup::NumScoreNumbers() const {
  const SamplingParams& sampling = request_.sampling;
  // A logprob, a rank and a length, and a token with its logprob for each alternative.
  const auto numbers = [](size_t num_tokens, int num_top) {
    return static_cast<int64_t>(num_tokens) * (3 + 2 * std::max(num_top, 0));
  };
  int64_t sum = 0;
  for (const auto& sequence : sequences_) {
    sum += numbers(prompt_scores_.size(), sampling.num_prompt_logprobs);
    sum += numbers(sequence->scores.size(), sampling.num_logprobs);
  }
  return sum;
}

BeamSearchState SequenceGroup::SearchState() const {
  BeamSearchState state = beam_search_->state();
  state.sequences = SequenceIds();
  return state;
}

bool SequenceGroup::KeepsWaiting(Sequence* sequence) {
  if (!sequence->wait.has_value()) return false;
  if (Find(sequence->wait->sequence)->num_computed_tokens() < sequence->wait->num_tokens) return true;
  sequence->wait.reset();
  return false;
}

int SequenceGroup::NumTokensLost() const {
  int sum = 0;
  bool is_planned_to_the_end = true;
  for (const auto& sequence : sequences_) {
    // The sequences share the prompt, so it counts once.
    const int shared = sequence == sequences_.front() ? 0 : sequence->prompt_length();
    sum += std::max(0, sequence->num_computed_tokens() - shared);
    if (sequence->num_uncomputed_tokens() > 0) is_planned_to_the_end = false;
  }
  return is_planned_to_the_end && beam_search_ == nullptr ? 0 : sum;
}

int64_t SequenceGroup::MaxBlocksToGoOn(const CacheGroups& groups) const {
  const int64_t num_shared = groups.NumSharedBlocks(static_cast<int64_t>(request_.prompt.size()));
  int64_t num_blocks = num_shared + num_rows() - num_sequences();
  for (const auto& sequence : sequences_) {
    num_blocks += groups.NumBlocks(sequence->num_known_tokens() + 1) - num_shared;
  }
  return std::min(num_blocks, MaxBlocks(request_, groups));
}

int SequenceGroup::NumGeneratedTokens() const {
  int sum = 0;
  for (const auto& sequence : sequences_) sum += sequence->num_generated_tokens();
  return sum;
}

bool SequenceGroup::has_slices_in_flight() const {
  return std::any_of(sequences_.begin(), sequences_.end(), [](const auto& s) { return s->has_slices_in_flight(); });
}

// Samples may have ended while the draws of others were postponed.
bool SequenceGroup::has_begun() const {
  return std::any_of(sequences_.begin(), sequences_.end(),
                     [](const auto& s) { return s->num_generated_tokens() > 0; }) ||
         (num_to_fork_ == 0 && num_sequences() < request_.num_samples);
}

void SequenceGroup::OnSlicesAbandoned() {
  QUIRE_CHECK(!is_running()) << id();
  state_ = State::kWaiting;
  shortage_.num_free_blocks = -1;
  for (const auto& sequence : sequences_) sequence->OnSlicesAbandoned();
  if (has_begun() || beam_search_ != nullptr || !request_.continued.empty()) return;
  sequences_.resize(1);
  num_to_fork_ = request_.num_samples - 1;
}

void SequenceGroup::EnterScheduler(ServiceRank rank, absl::FunctionRef<SequenceId()> new_id) {
  QUIRE_CHECK(state_ == State::kWaiting) << id();
  rank_ = rank;
  shortage_ = {};
  prefix_standing_ = {};
  for (const auto& sequence : sequences_) sequence->Rename(new_id());
}

std::optional<Sequence::Wait> SharedPart(const Sequence& sequence, absl::Span<const std::unique_ptr<Sequence>> earlier,
                                         int block_size) {
  std::optional<Sequence::Wait> best;
  const std::vector<TokenId>& tokens = sequence.tokens();
  const int num_needed = sequence.num_generated_tokens() == 0 ? 0 : 1;  // Tokens that must be computed.
  for (const auto& other : earlier) {
    const int limit = std::min(sequence.num_known_tokens() - num_needed, other->num_known_tokens());
    int length = std::min(sequence.prompt_length(), limit);  // Both begin with the prompt.
    while (length < limit && tokens[length] == other->tokens()[length]) ++length;
    length -= length % block_size;
    if (length > 0 && (!best.has_value() || length > best->num_tokens)) best = {other->id(), length};
  }
  return best;
}

}  // namespace quire
