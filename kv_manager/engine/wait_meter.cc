// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/wait_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire {
namespace {

constexpr int64_t kSpanUs = 50'000;
// The weight of the newest value in a mean over steps and over requests.
constexpr double kStepWeight = 1.0 / 32;
constexpr double kRequestWeight = 1.0 / 32;
constexpr int kMeanOutputs = 32;  // About the number of outputs in the mean of a size.
// A queue of this part of the longest wait is full, and one of this part of the wait during overload is short.
constexpr double kFullQueue = 0.9;
constexpr double kShortQueue = 0.5;

}  // namespace

void WaitMeter::OnPlanned(int64_t now_us, const SchedulerCounts& counts) {
  // While a suspect runs alone, everybody waits. That says nothing about the rate afterwards.
  if (counts.suspects > 0) {
    last_plan_us_ = now_us;
  } else if (is_busy_) {
    Add({now_us - last_plan_us_, counts.entered_tokens - last_entered_tokens_, counts.entered - last_entered_});
  } else if (counts.waiting > 0 && now_us - last_plan_us_ > kForgetUs) {
    spans_.clear();
    sum_ = {};
  }
  const bool was_busy = is_busy_;
  is_busy_ = counts.waiting > 0;
  // While nobody waits, the time of the last plan that left somebody waiting is kept.
  if (is_busy_ || was_busy) last_plan_us_ = now_us;
  last_entered_ = counts.entered;
  last_entered_tokens_ = counts.entered_tokens;
  if (is_busy_) waiting_mean_tokens_ = static_cast<double>(counts.waiting_tokens) / counts.waiting;
}

void WaitMeter::Add(const Span& span) {
  const bool grows = !spans_.empty() && (spans_.back().us < kSpanUs || spans_.back().starts + span.starts == 0);
  if (!grows) spans_.emplace_back();
  for (Span* const to : {&spans_.back(), &sum_}) {
    to->us += span.us;
    to->tokens += span.tokens;
    to->starts += span.starts;
  }
  while (sum_.us - spans_.front().us >= kWindowUs && sum_.starts - spans_.front().starts >= kMinStarts) {
    sum_.us -= spans_.front().us;
    sum_.tokens -= spans_.front().tokens;
    sum_.starts -= spans_.front().starts;
    spans_.pop_front();
  }
}

void WaitMeter::NoteQueues(int64_t now_us, absl::Span<const TenantBacklog> backlogs, const WaitLimits& limits) {
  const double full_us = kFullQueue * static_cast<double>(limits.max_wait_us);
  const double short_us = kShortQueue * static_cast<double>(limits.overloaded_wait_us());
  const WaitForecast forecast = Forecast();
  bool has_changed = false;
  for (const auto& [queue, num_tokens_ahead] : backlogs) {
    const auto wait_us = static_cast<double>(forecast.WaitUs(num_tokens_ahead));
    if (wait_us >= full_us) {
      has_changed |= overloads_.insert_or_assign(std::string(queue), Overload{now_us, now_us}).second;
    } else if (const auto overload = overloads_.find(queue); overload != overloads_.end() && num_tokens_ahead > 0) {
      overload->second.waiting_us = now_us;
      if (wait_us >= short_us) overload->second.long_us = now_us;
    }
  }
  const auto has_ended = [&](const auto& entry) {
    const Overload& overload = entry.second;
    return now_us - overload.long_us >= limits.max_wait_us ||
           now_us - overload.waiting_us >= limits.overloaded_wait_us();
  };
  has_changed |= absl::erase_if(overloads_, has_ended) > 0;
  if (!has_changed) return;
  auto overloaded = std::make_shared<absl::flat_hash_set<std::string>>();
  for (const auto& [queue, overload] : overloads_) overloaded->insert(queue);
  overloaded_queues_ = std::move(overloaded);
}

void WaitMeter::NoteEnds(const Scheduler& scheduler) {
  const SchedulerCounts counts = scheduler.counts();
  num_running_ = counts.running;
  num_free_rows_ = counts.free_rows;
  ends_us_ = {};
  if (counts.free_rows >= counts.running) return;  // Enough for all that may come soon.
  steps_left_.clear();
  scheduler.ForEachRunning([this](const SequenceGroup& group) {
    const float expected = output_tokens_[WaitForecast::OutputSizeOf(group.request().max_tokens)];
    const auto num_tokens = static_cast<float>(group.sequences().front()->num_generated_tokens());
    // Nothing is known of outputs with this size, or how far beyond the mean this one goes: as far again, at most to
    // its limit.
    const auto most = static_cast<float>(group.request().max_tokens) - num_tokens;
    steps_left_.push_back(expected == 0 ? 0.0F : std::max(std::min(std::abs(expected - num_tokens), most), 0.0F));
  });
  std::sort(steps_left_.begin(), steps_left_.end());
  for (size_t i = 0; i < ends_us_.size(); ++i) {
    ends_us_[i] = steps_left_[(steps_left_.size() - 1) * i / (ends_us_.size() - 1)] * static_cast<float>(step_us_);
  }
}

void WaitMeter::OnStep(int64_t step_us, int num_requests, int num_slices, int num_tokens) {
  const auto us = static_cast<double>(step_us);
  step_model_.Record(num_slices, num_tokens, us);
  if (step_us_ == 0) {
    step_us_ = us;
    step_requests_ = num_requests;
  }
  step_us_ += kStepWeight * (us - step_us_);
  step_requests_ += kStepWeight * (num_requests - step_requests_);
  least_step_us_ = least_step_us_ == 0 ? step_us_ : std::min(least_step_us_, step_us_);
}

void WaitMeter::OnFinished(int max_tokens, double num_tokens, int num_prompt_tokens) {
  LearnOutput(max_tokens, num_tokens);
  const double weight = sample_tokens_ == 0 ? 1 : kRequestWeight;
  sample_tokens_ += weight * (num_tokens - sample_tokens_);
  prompt_tokens_ += weight * (num_prompt_tokens - prompt_tokens_);
}

void WaitMeter::LearnOutput(int max_tokens, double num_tokens) {
  const int size = WaitForecast::OutputSizeOf(max_tokens);
  int& num_outputs = num_outputs_[size];
  num_outputs = std::min(num_outputs + 1, kMeanOutputs);
  output_tokens_[size] += (static_cast<float>(num_tokens) - output_tokens_[size]) / static_cast<float>(num_outputs);
}

void WaitMeter::OnEndedEarly(int max_tokens, double num_tokens) {
  if (num_tokens > output_tokens_[WaitForecast::OutputSizeOf(max_tokens)]) LearnOutput(max_tokens, num_tokens);
}

void WaitMeter::OnLost() {
  is_busy_ = false;
  spans_.clear();
  sum_ = {};
  step_us_ = 0;
  step_requests_ = 0;
  least_step_us_ = 0;
  step_model_ = {};
  num_running_ = 0;
  num_free_rows_ = 0;
  ends_us_ = {};
}

WaitForecast WaitMeter::Forecast(absl::string_view queue) const {
  WaitForecast forecast;
  const bool has_starts = static_cast<double>(sum_.starts) >= std::min<double>(kMinStarts, step_requests_);
  if (is_busy_ && has_starts && sum_.us >= kMinBusyUs) {
    // The next request counts as one that has just started, so a rate of 0 does not occur.
    forecast.us_per_waiting_token =
        static_cast<double>(sum_.us) / (static_cast<double>(sum_.tokens) + waiting_mean_tokens_);
  }
  forecast.is_overloaded = overloads_.contains(queue);
  if (!is_busy_) forecast.calm_since_us = last_plan_us_;
  forecast.step_us = step_us_;
  forecast.step_requests = step_requests_;
  forecast.least_step_us = least_step_us_;
  if (sample_tokens_ > 0 && step_model_.us_per_request() > 0) {
    const double prompt_tokens_per_step = prompt_tokens_ / sample_tokens_;
    forecast.us_per_request = step_model_.us_per_request() + step_model_.us_per_prompt_token() * prompt_tokens_per_step;
  }
  forecast.num_running = num_running_;
  forecast.num_free_rows = num_free_rows_;
  forecast.tokens_per_waiting = waiting_mean_tokens_;
  forecast.ends_us = ends_us_;
  forecast.output_tokens = output_tokens_;
  return forecast;
}

}  // namespace quire
