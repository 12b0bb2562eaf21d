// SPDX-License-Identifier: Apache-2.0

#include "worker/sampling_state.h"

#include <algorithm>

#include "base/message_numbers.h"

namespace quire {
namespace {

// Returns the number of alternatives, limited to the vocabulary, or -1 for no logprobs.
int TopFrom(uint32_t num_plus_one, int vocab_size) {
  return static_cast<int>(std::min<int64_t>(int64_t{num_plus_one} - 1, vocab_size));
}

}  // namespace

void SamplingState::Start(const v1::SequenceStart& start, int vocab_size) {
  const v1::RowSampling& params = start.sampling();
  vocab_size_ = vocab_size;
  guide_.reset();
  guide_status_ = absl::OkStatus();
  prompt_length_ = static_cast<int>(start.prompt_length());
  min_tokens_ = static_cast<int>(std::min<uint32_t>(params.min_tokens(), INT32_MAX));
  num_top_ = params.num_candidates() > 0 ? -1 : TopFrom(params.num_logprobs_plus_one(), vocab_size);
  num_prompt_top_ = TopFrom(params.num_prompt_logprobs_plus_one(), vocab_size);

  biases_.clear();
  for (int i = 0; i < params.biases_size(); ++i) {
    biases_.push_back({static_cast<TokenId>(params.bias_token_ids(i)), params.biases(i)});
  }
  allowed_.assign(params.allowed_token_ids().begin(), params.allowed_token_ids().end());
  std::sort(allowed_.begin(), allowed_.end());
  allowed_.erase(std::unique(allowed_.begin(), allowed_.end()), allowed_.end());
  min_tokens_masked_.assign(params.min_tokens_masked_ids().begin(), params.min_tokens_masked_ids().end());
  StartBadWords(params);

  params_ = {};
  params_.top_k = params.top_k() < static_cast<uint32_t>(vocab_size) ? static_cast<int>(params.top_k()) : 0;
  for (const SamplingNumber& number : kSamplingNumbers) {
    params_.*number.member = static_cast<float>(NumberOf(params, number.name));
  }
  seed_ = params.seed();
  SetSampleIndex(start.sample_index());
  params_.given_token = -1;
  params_.num_candidates = std::min(static_cast<int>(params.num_candidates()), vocab_size);

  counts_.clear();
  count_index_.clear();
  if (HasPenalties()) {
    for (int i = 0; i < start.token_ids_size(); ++i) Count(start.token_ids(i), i >= prompt_length_);
  }
}

void SamplingState::StartBadWords(const v1::RowSampling& params) {
  bad_words_.clear();
  bad_tokens_.clear();
  auto token = params.bad_word_token_ids().begin();
  for (uint32_t length : params.bad_word_lengths()) {
    const auto last = token + (length - 1);
    if (length == 1) {
      bad_tokens_.push_back(*last);
    } else {
      bad_words_.push_back({std::vector<TokenId>(token, last), static_cast<TokenId>(*last)});
    }
    token = last + 1;
  }
}

void SamplingState::Append(TokenId token) {
  if (HasPenalties()) Count(token, true);
  if (guide_.has_value()) guide_->Append(token);
}

bool SamplingState::HasPenalties() const {
  return params_.presence_penalty != 0 || params_.frequency_penalty != 0 || params_.repetition_penalty != 1;
}

void SamplingState::Count(TokenId token, bool generated) {
  const auto [entry, is_new] = count_index_.try_emplace(token, static_cast<int>(counts_.size()));
  if (is_new) counts_.push_back({.token = token, .prompt_count = 0, .output_count = 0});
  TokenCount& count = counts_[entry->second];
  ++(generated ? count.output_count : count.prompt_count);
}

SamplingRow SamplingState::Draw(absl::Span<const TokenId> tokens) {
  CollectMasked(tokens.subspan(std::min<size_t>(prompt_length_, tokens.size())));
  SamplingRow row = params_;
  row.position = static_cast<uint32_t>(tokens.size());
  row.num_top = num_top_;
  row.counts = counts_.data();
  row.num_counts = static_cast<int>(counts_.size());
  row.biases = biases_.data();
  row.num_biases = static_cast<int>(biases_.size());
  row.allowed = allowed_.data();
  row.num_allowed = static_cast<int>(allowed_.size());
  row.masked = masked_.data();
  row.num_masked = static_cast<int>(masked_.size());
  if (guide_.has_value()) ApplyGuide(&row);
  return row;
}

void SamplingState::ApplyGuide(SamplingRow* row) {
  guided_ = SelectTokens(guide_mask_, vocab_size_, allowed_, masked_);
  row->allowed = guided_.allowed.data();
  row->num_allowed = static_cast<int>(guided_.allowed.size());
  row->masked = guided_.masked.data();
  row->num_masked = static_cast<int>(guided_.masked.size());
}

SamplingRow SamplingState::Score(TokenId token) const {
  SamplingRow row = {};
  row.num_top = num_prompt_top_;
  row.given_token = token;
  return row;
}

void SamplingState::CollectMasked(absl::Span<const TokenId> generated) {
  masked_ = bad_tokens_;
  for (const BadWord& word : bad_words_) {
    if (generated.size() < word.prefix.size()) continue;
    if (generated.last(word.prefix.size()) == absl::MakeConstSpan(word.prefix)) masked_.push_back(word.last);
  }
  if (static_cast<int>(generated.size()) < min_tokens_) {
    masked_.insert(masked_.end(), min_tokens_masked_.begin(), min_tokens_masked_.end());
  }
}

}  // namespace quire
