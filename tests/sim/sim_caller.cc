// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/sim_caller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"

namespace quire {

SimCaller::SimCaller(Request request, const ShadowModel& model, std::optional<Poison> poison)
    : SimCaller(request, model, std::make_shared<const SoloOutput>(SoloRun(model, request)), poison) {}

SimCaller::SimCaller(Request request, const ShadowModel& model, std::shared_ptr<const SoloOutput> solo,
                     std::optional<Poison> poison)
    : request_(std::move(request)),
      model_(model),
      poison_(poison),
      solo_(std::move(solo)),
      next_generation_(request_.generation),
      next_model_(model),
      samples_(solo_->samples.size()),
      num_running_(num_outputs()) {}

std::shared_ptr<SimCaller> SimCaller::Again() const {
  return std::shared_ptr<SimCaller>(new SimCaller(request_, model_, solo_, poison_));
}

std::shared_ptr<SimCaller> SimCaller::RestoredOn(GenerationId generation, const ShadowModel& model) const {
  std::shared_ptr<SimCaller> restored = Again();
  restored->request_.generation = restored->next_generation_ = generation;
  restored->next_model_ = model;
  restored->request_.pins.clear();  // They end with the manager.
  restored->changes_ = changes_;
  restored->has_mixed_numerics_ = has_mixed_numerics_;
  for (const auto& [sample, changes] : changes_) {
    const int num_told = request_.beam.has_value() ? request_.beam->num_return : 1;
    for (int i = 0; i < num_told; ++i) restored->untold_[sample + i] = changes.front().num_generated;
  }
  return restored;
}

std::shared_ptr<SimCaller> SimCaller::SentAgain(std::string record) const {
  std::shared_ptr<SimCaller> again = Again();
  if (request_.record != nullptr) again->request_.record = std::make_shared<const std::string>(std::move(record));
  return again;
}

std::shared_ptr<SimCaller> SimCaller::BegunAgain(GenerationId generation, const ShadowModel& model,
                                                 std::string record) const {
  Request request = request_;
  request.generation = generation;
  if (request.record != nullptr) request.record = std::make_shared<const std::string>(std::move(record));
  return std::make_shared<SimCaller>(std::move(request), model, poison_);
}

bool SimCaller::is_lost() const {
  const std::optional<StatusReason> reason = ReasonOf(failure_);
  return reason.has_value() && reason->word == "REQUEST_UNKNOWN";
}

template <typename... Parts>
void SimCaller::Complain(const Parts&... parts) {
  if (status_.ok()) status_ = absl::InternalError(absl::StrCat("request ", Value(request_.id), ": ", parts...));
}

void SimCaller::OnStarted(int num_cached_tokens) {
  if (is_deaf_) return;
  if (has_started_ || has_ended_) Complain("started twice, or after its end");
  if (num_cached_tokens < 0 || num_cached_tokens >= static_cast<int>(request_.prompt.size())) {
    Complain(num_cached_tokens, " of ", request_.prompt.size(), " prompt tokens were cached");
  }
  const bool may_start_cached = !request_.bypass_prefix_cache && request_.sampling.num_prompt_logprobs < 0 &&
                                !PoolsEarlierTokens(request_.sampling.pooling);
  if (num_cached_tokens > 0 && !may_start_cached) Complain("used the prefix cache");
  has_started_ = true;
  num_cached_tokens_ = num_cached_tokens;
}

void SimCaller::OnPinned(std::vector<int> num_tokens) {
  if (is_deaf_) return;
  if (has_ended_ || !has_started_ || num_tokens_ > 0 || !pinned_tokens_.empty()) Complain("pins in the wrong place");
  if (num_tokens.size() != request_.pins.size()) Complain(num_tokens.size(), " pins of ", request_.pins.size());
  pinned_tokens_ = std::move(num_tokens);
  has_pin_news_ = true;
}

void SimCaller::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  if (is_deaf_) return;
  if (has_ended_ || !has_started_) Complain("prompt logprobs before the start or after the end");
  if (tokens.empty() || first_position != 1 + static_cast<int>(num_prompt_logprobs_) || num_tokens_ > 0) {
    return Complain(tokens.size(), " prompt logprobs from position ", first_position, " on, after ",
                    num_prompt_logprobs_);
  }
  for (const ScoredToken& token : tokens) {
    if (num_prompt_logprobs_ == solo_->prompt_logprobs.size() ||
        token != solo_->prompt_logprobs[num_prompt_logprobs_++]) {
      return Complain("the prompt logprob of position ", num_prompt_logprobs_, " is not as in a solo run");
    }
  }
}

void SimCaller::OnEmbedding(std::vector<float> values) {
  if (is_deaf_) return;
  if (has_ended_ || !has_started_ || has_embedding_ || num_tokens_ > 0) Complain("an embedding in the wrong place");
  if (values != solo_->embedding) Complain("the embedding is not as in a solo run");
  has_embedding_ = true;
}

void SimCaller::OnToken(int sample_index, int position, ScoredToken token) {
  if (is_deaf_) return;
  if (sample_index < 0 || sample_index >= num_outputs()) return Complain("token of sample ", sample_index);
  Sample& sample = samples_[sample_index];
  if (has_ended_ || sample.state == Sample::State::kEnded || !has_started_)
    Complain("token before the start or after the end");
  if (pinned_tokens_.size() != request_.pins.size()) Complain("a token before the pins");
  if (position != static_cast<int>(request_.prompt.size()) + sample.num_tokens) {
    return Complain("token at position ", position, " of sample ", sample_index, " after ", sample.num_tokens);
  }
  if (const auto untold = untold_.find(sample_index); untold != untold_.end() && sample.num_tokens >= untold->second) {
    return Complain("token at position ", position, " of sample ", sample_index,
                    " has other numerics, and the new stream was not told");
  }
  const std::vector<TokenId>& solo = solo_->samples[sample_index].tokens;
  if (sample.num_tokens == static_cast<int>(solo.size()) || token.token != solo[sample.num_tokens]) {
    return Complain("token ", token.token, " at position ", position, " of sample ", sample_index,
                    " is not as in a solo run");
  }
  const std::vector<ScoredToken>& scores = solo_->samples[sample_index].scores;
  if (!scores.empty() && token != scores[sample.num_tokens]) {
    return Complain("the logprob of position ", position, " of sample ", sample_index, " is not as in a solo run");
  }
  ++sample.num_tokens;
  ++num_tokens_;
}

// The tokens before the position still come from the models before, and the rest from the next model. The samples of a
// request are told one after the other.
void SimCaller::OnNumericsChanged(int sample_index, int position) {
  if (is_deaf_) return;
  const bool is_search = request_.beam.has_value();
  // A search is told of all hypotheses that it may return. With a small vocabulary it finds fewer.
  const int num_told = is_search ? request_.beam->num_return : num_outputs();
  if (sample_index < 0 || sample_index >= num_told) return Complain("other numerics of sample ", sample_index);
  const Sample& sample = samples_[std::min(sample_index, num_outputs() - 1)];
  if (has_ended_ || sample.state == Sample::State::kEnded) Complain("other numerics after the end");
  if (const auto untold = untold_.find(sample_index); untold != untold_.end()) {
    const int first = static_cast<int>(request_.prompt.size()) + untold->second;
    if (position != first || sample.num_tokens > untold->second) {
      return Complain("the new stream is told of other numerics of sample ", sample_index, " from position ", position,
                      " on, the one before it from ", first, " on");
    }
    untold_.erase(untold);
    return;
  }
  if (next_model_.numerics == model_.numerics && changes_.empty()) Complain("other numerics of the same worker");
  request_.generation = next_generation_;
  const int num_generated = position - static_cast<int>(request_.prompt.size());
  if (is_search ? num_generated < 0 || num_generated >= request_.max_tokens : num_generated != sample.num_tokens) {
    return Complain("other numerics from position ", position, " on, after ", sample.num_tokens, " tokens of sample ",
                    sample_index);
  }
  std::vector<ModelChange>& changes = changes_[is_search ? 0 : sample_index];
  if (is_search && sample_index > 0 && (changes.empty() || changes.back().num_generated != num_generated)) {
    return Complain("beams have other numerics from different positions on");
  }
  changes.push_back({num_generated, next_model_});
  has_mixed_numerics_ |= num_generated > 0 || num_tokens_ > 0;
  auto solo = std::make_shared<SoloOutput>(*solo_);
  if (is_search) {
    *solo = SoloRun(model_, request_, changes);
  } else {
    solo->samples[sample_index] = SoloRunOfSample(model_, request_, sample_index, changes);
  }
  solo_ = std::move(solo);
}

void SimCaller::OnFinished(const Finished& finished) {
  if (is_deaf_) return;
  if (finished.sample_index < 0 || finished.sample_index >= num_outputs()) return Complain("end of no sample");
  Sample& sample = samples_[finished.sample_index];
  const SoloSample& solo = solo_->samples[finished.sample_index];
  const bool had_ended = SetState(&sample, Sample::State::kEnded) == Sample::State::kEnded;
  if (had_ended || has_ended_) Complain("sample ", finished.sample_index, " ended twice");
  if (finished.reason != solo.reason || finished.score != solo.score) {
    Complain("sample ", finished.sample_index, " ended for reason ", static_cast<int>(finished.reason), " with score ",
             finished.score, ", alone for ", static_cast<int>(solo.reason), " with ", solo.score);
  }
  if (sample.num_tokens != static_cast<int>(solo.tokens.size())) {
    Complain("sample ", finished.sample_index, " ended after ", sample.num_tokens, " of ", solo.tokens.size());
  }
  if (num_prompt_logprobs_ != solo_->prompt_logprobs.size()) Complain("ended without all prompt logprobs");
  if (has_embedding_ != !solo_->embedding.empty()) Complain("ended without an embedding, or with one");
  has_ended_ = has_left_scheduler();
  if (finished.ends_request != has_ended_) Complain("ends_request is ", finished.ends_request);
}

void SimCaller::OnFailed(absl::Status status) {
  if (is_deaf_) return;
  if (has_ended_) Complain("failed after its end");
  if (status.ok()) Complain("failed without an error");
  failure_ = std::move(status);
  has_ended_ = true;
  if (is_lost() && (!has_mixed_numerics_ || has_started_)) Complain("is lost, and it could restart or continue");
}

bool SimCaller::MayEndSample(int sample_index) const {
  return !has_ended_ && !request_.beam.has_value() && sample_index < num_outputs() &&
         samples_[sample_index].num_tokens > 0 && samples_[sample_index].state == Sample::State::kRuns;
}

SimCaller::Sample::State SimCaller::SetState(Sample* sample, Sample::State state) {
  num_running_ += (state == Sample::State::kRuns) - (sample->state == Sample::State::kRuns);
  num_ended_ += (state == Sample::State::kEnded) - (sample->state == Sample::State::kEnded);
  return std::exchange(sample->state, state);
}

void SimCaller::EndSample(int sample_index) {
  SetState(&samples_[sample_index], Sample::State::kEndPosted);
}

void SimCaller::OnSampleEndTaken(int sample_index) {
  SetState(&samples_[sample_index], Sample::State::kEnded);
}

bool SimCaller::OnCancelTaken() {
  return !std::exchange(has_ended_, true);
}

std::vector<TokenId> SimCaller::Transcript(int sample_index) const {
  std::vector<TokenId> tokens = request_.prompt;
  const std::vector<TokenId>& output = solo_->samples[sample_index].tokens;
  tokens.insert(tokens.end(), output.begin(), output.end());
  return tokens;
}

void CallerTotals::Add(const SimCaller& caller) {
  ++requests;
  if (!caller.request().is_prompt_only) tokens += caller.num_tokens();
  cached_tokens += caller.num_cached_tokens();
  prompt_tokens += static_cast<int64_t>(caller.request().prompt.size());
}

}  // namespace quire
