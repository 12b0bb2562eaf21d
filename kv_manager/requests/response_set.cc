// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/response_set.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace quire {
namespace {

// Minus infinity when there is no token, which ranks last.
double MeanLogprob(const ResponseBuilder& sample) {
  if (sample.num_tokens() == 0) return -std::numeric_limits<double>::infinity();
  return sample.logprob_sum() / sample.num_tokens();
}

}  // namespace

ResponseSet::ResponseSet(std::shared_ptr<const ServedModel> model, std::string name, const ValidRequest& request)
    : model_(std::move(model)),
      name_(std::move(name)),
      is_beam_search_(request.request.beam.has_value()),
      num_returned_(request.num_returned),
      max_tokens_(request.request.max_tokens),
      seed_(request.request.sampling.seed),
      num_prompt_tokens_(static_cast<int>(request.request.prompt.size())),
      pinned_tokens_(request.request.pins.size()),
      shows_prompt_usage_(!request.request.pins.empty()) {
  const ResponseBuilder first(model_, request, &prompt_text_);
  samples_.assign(NumOutputs(request.request), Sample{first});
  order_.resize(samples_.size());
  std::iota(order_.begin(), order_.end(), 0);
  has_received_.resize(samples_.size());
  for (size_t i = 0; i < request.continued.size(); ++i) Continue(static_cast<int>(i), request.continued[i]);
  if (request.is_over()) End(/*is_whole=*/true);  // The end that is sent first has the usage.
  if (request.request.sampling.num_prompt_logprobs >= 0) BeginPromptLogprobs(request);
}

void ResponseSet::BeginPromptLogprobs(const ValidRequest& request) {
  const std::vector<TokenId>& prompt = request.request.prompt;
  for (int i = 0; i < num_prompt_tokens_; ++i) prompt_logprobs_.Add();
  if (model_->tokenizer == nullptr) return;
  prompt_logprobs_[0].set_first_token(model_->tokenizer->TokenBytes(prompt[0]));
  if (request.echo == Echo::kNone) return;
  const std::vector<size_t> offsets = PromptTextOffsets(*model_->tokenizer, prompt, prompt_text_);
  for (int i = 0; i < num_prompt_tokens_; ++i) {
    prompt_logprobs_[i].set_text_offset(static_cast<uint32_t>(offsets[i]));
  }
}

void ResponseSet::Continue(int sample_index, const ValidRequest::Continued& continued) {
  if (continued.tokens.empty()) return;
  ResponseBuilder& builder = samples_[sample_index].builder;
  builder.SkipTo(num_prompt_tokens_ + static_cast<int>(continued.tokens.size()));
  for (const TokenId token : continued.tokens) builder.AddToken({.token = token, .top = {}});
  if (continued.end.has_value() && !builder.is_finished()) builder.Finish(*continued.end);
  samples_[sample_index].is_sent = true;
  shows_prompt_usage_ = false;
  has_received_[sample_index] = continued.has_finish;
}

// When the best samples are picked, each is sent in one response, so the client has all of a sample or nothing.
void ResponseSet::SkipReceived(const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received) {
  for (const v1::ReceivedSample& sample : received) {
    has_received_[sample.index()] = sample.has_finish();
    if (picks_best() || static_cast<int>(sample.next_position()) <= num_prompt_tokens_) continue;
    ResponseBuilder& builder = samples_[sample.index()].builder;
    builder.SkipTo(static_cast<int>(sample.next_position()));
    if (sample.has_numerics_changed_at()) {
      builder.ExpectNumericsChange(static_cast<int>(sample.numerics_changed_at()));
    }
    samples_[sample.index()].is_sent = true;
    shows_prompt_usage_ = false;
  }
}

void ResponseSet::AddPromptLogprobs(int first_position, const std::vector<ScoredToken>& tokens) {
  if (prompt_logprobs_.empty()) return;
  QUIRE_CHECK_GE(first_position, 0);
  QUIRE_CHECK_LE(first_position + static_cast<int>(tokens.size()), prompt_logprobs_.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    SetLogprobs(*model_, tokens[i], prompt_logprobs_.Mutable(first_position + static_cast<int>(i)));
  }
}

bool ResponseSet::AddToken(int sample_index, const ScoredToken& token) {
  ResponseBuilder& builder = samples_[sample_index].builder;
  if (builder.is_finished()) return false;
  const bool is_stopped = builder.AddToken(token);
  contradicts_client_ |= builder.contradicts_client();
  return is_stopped && !is_beam_search_;
}

void ResponseSet::FinishSample(const Finished& finished) {
  Sample& sample = samples_[finished.sample_index];
  if (!sample.builder.is_finished()) sample.builder.Finish(finished.reason);
  if (!is_beam_search_) return;
  sample.is_ranked = true;
  sample.builder.mutable_response()->set_score(finished.score);
}

bool ResponseSet::are_all_finished() const {
  return !is_beam_search_ && std::all_of(samples_.begin(), samples_.end(),
                                         [](const Sample& sample) { return sample.builder.is_finished(); });
}

void ResponseSet::End(bool is_whole) {
  phase_ = is_whole ? Phase::kWhole : Phase::kBrokenOff;
  if (!is_whole) return;
  // A search may return fewer hypotheses than asked for, when masks leave no token; an aborted one returns the best.
  const int num_owed = is_beam_search_ ? 1 : num_samples();
  for (int i = 0; i < num_owed; ++i) {
    if (!samples_[i].builder.is_finished()) samples_[i].builder.Finish(FinishReason::kCancelled);
  }
  if (picks_best()) PickBest();
}

// Samples with equal logprobs stay in the order of their seeds.
void ResponseSet::PickBest() {
  std::stable_sort(order_.begin(), order_.end(), [this](int a, int b) {
    return MeanLogprob(samples_[a].builder) > MeanLogprob(samples_[b].builder);
  });
  order_.resize(num_returned_);
  for (int sample_index : order_) {
    ResponseBuilder& builder = samples_[sample_index].builder;
    if (builder.num_tokens() == 0) continue;
    builder.mutable_response()->set_score(static_cast<float>(MeanLogprob(builder)));
  }
}

bool ResponseSet::MaySend(int sample_index) const {
  const Sample& sample = samples_[sample_index];
  if (!sample.builder.has_news()) return false;
  if (!is_beam_search_) return !picks_best() || phase_ == Phase::kWhole;
  // A hypothesis that a stop string has finished waits for its score.
  return sample.is_ranked || (sample_index == 0 && (!sample.builder.is_finished() || phase_ != Phase::kRunning));
}

std::optional<int> ResponseSet::FindNext(int first) const {
  if (contradicts_client_) return std::nullopt;
  for (int index = first; index < static_cast<int>(order_.size()); ++index) {
    if (!has_received_[index] && MaySend(order_[index])) return index;
  }
  return std::nullopt;
}

bool ResponseSet::is_last() const {
  const std::optional<int> next = FindNext();
  return phase_ != Phase::kRunning && next.has_value() && !FindNext(*next + 1).has_value();
}

const v1::GenerateResponse* ResponseSet::Next() {
  const int index = *FindNext();
  Sample& sample = samples_[order_[index]];
  sample.builder.WriteLogprobs();
  v1::GenerateResponse* response = sample.builder.mutable_response();
  response->set_request_id(name_);
  response->set_index(index);
  if (!std::exchange(sample.is_sent, true)) BeginSample(index, order_[index]);
  if (!resume_token_.empty()) {
    response->set_resume_token(std::exchange(resume_token_, ""));
    response->set_numerics_fingerprint(model_->numerics_fingerprint);
  }
  if (std::exchange(shows_prompt_usage_, false)) SetPromptUsage(response->mutable_prompt_usage());
  if (!is_last() || phase_ != Phase::kWhole) return response;
  v1::Usage* usage = response->mutable_usage();
  SetPromptUsage(usage);
  int num_tokens = 0;
  for (const Sample& other : samples_) num_tokens += other.builder.is_finished() ? other.builder.num_tokens() : 0;
  usage->set_completion_tokens(num_tokens);
  return response;
}

void ResponseSet::SetPromptUsage(v1::Usage* usage) const {
  usage->set_prompt_tokens(num_prompt_tokens_);
  usage->set_cached_tokens(num_cached_tokens_);
  for (const int num_tokens : pinned_tokens_) usage->add_pins()->set_pinned_tokens(num_tokens);
}

int ResponseSet::num_output_tokens() const {
  int num_tokens = 0;
  for (const Sample& sample : samples_) num_tokens += sample.builder.num_tokens();
  return num_tokens;
}

std::string ResponseSet::finish_reasons() const {
  std::string reasons;
  for (const auto& [reason, name] : {std::pair(v1::FINISH_REASON_STOP, "stop"),
                                     {v1::FINISH_REASON_LENGTH, "length"},
                                     {v1::FINISH_REASON_ABORT, "abort"}}) {
    const bool is_there = std::any_of(samples_.begin(), samples_.end(), [reason = reason](const Sample& sample) {
      return sample.builder.finish_reason() == reason;
    });
    if (is_there) absl::StrAppend(&reasons, reasons.empty() ? "" : ",", name);
  }
  return reasons;
}

bool ResponseSet::is_aborted() const {
  return std::any_of(samples_.begin(), samples_.end(),
                     [](const Sample& sample) { return sample.builder.finish_reason() == v1::FINISH_REASON_ABORT; });
}

void ResponseSet::BeginSample(int index, int sample_index) {
  v1::GenerateResponse* response = samples_[sample_index].builder.mutable_response();
  if (!prompt_text_.empty()) response->mutable_text_delta()->insert(0, prompt_text_);
  if (!is_beam_search_) response->set_seed(seed_ + sample_index);
  if (index == 0) response->mutable_prompt_logprobs()->Swap(&prompt_logprobs_);
}

void ResponseSet::StartNext() {
  samples_[order_[*FindNext()]].builder.StartNextResponse();
}

int64_t ResponseSet::num_bytes() const {
  const size_t num_bytes = sizeof(*this) + samples_.size() * (sizeof(Sample) + sizeof(int)) + prompt_text_.capacity() +
                           prompt_logprobs_.SpaceUsedExcludingSelfLong();
  return static_cast<int64_t>(num_bytes);
}

int64_t ResponseSet::max_step_tokens() const {
  return is_beam_search_ ? int64_t{num_samples()} * max_tokens_ : num_samples();
}

}  // namespace quire
