// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_manager/requests/fake_engine.h"

#include <algorithm>
#include <utility>

namespace quire {
namespace {

ScoredToken Scored(TokenId token, int num_logprobs) {
  ScoredToken scored;
  scored.token = token;
  if (num_logprobs < 0) return scored;
  scored.logprob = -0.5f;
  scored.rank = 1;
  for (int i = 0; i < num_logprobs; ++i) scored.top.push_back({i, -1.0f - i});
  return scored;
}

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

FakeEngine::FakeEngine(std::shared_ptr<const ServedModel> model) : model_(std::move(model)) {
  thread_ = std::thread([this] { Run(); });
}

FakeEngine::~FakeEngine() {
  {
    const MutexLock lock(&mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void FakeEngine::Hold() {
  const MutexLock lock(&mutex_);
  steps_left_ = 0;
}

void FakeEngine::Step(int num_steps) {
  {
    const MutexLock lock(&mutex_);
    steps_left_ = *steps_left_ + num_steps;
  }
  changed_.NotifyAll();
}

absl::Status FakeEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  if (before_submit) before_submit();
  if (!submit_status.ok()) return submit_status;
  {
    const MutexLock lock(&mutex_);
    // A request that has told its end is still in the list.
    const auto num_running = static_cast<size_t>(
        std::count_if(live_.begin(), live_.end(), [](const auto& live) { return !live->samples.empty(); }));
    if (num_running >= max_running) return absl::ResourceExhaustedError("the queue is full");
    most_running_ = std::max(most_running_, num_running + 1);
    requests_.push_back(request);
    const int num_samples = NumOutputs(request);
    const auto live = std::make_shared<Live>(Live{std::move(request), std::move(sink)});
    for (int i = 0; i < num_samples; ++i) live->samples.insert(i);
    live_.push_back(live);
  }
  changed_.NotifyAll();
  return absl::OkStatus();
}

void FakeEngine::Cancel(RequestId request, FinishReason /*reason*/) {
  {
    const MutexLock lock(&mutex_);
    const auto it =
        std::find_if(live_.begin(), live_.end(), [&](const auto& live) { return live->request.id == request; });
    if (it == live_.end()) return;
    live_.erase(it);
    cancelled_.push_back(request);
  }
  changed_.NotifyAll();
}

void FakeEngine::CancelSample(RequestId request, int sample_index) {
  const MutexLock lock(&mutex_);
  for (const auto& live : live_) {
    if (live->request.id == request) live->samples.erase(sample_index);
  }
}

bool FakeEngine::MayStep() const {
  return !live_.empty() && (!steps_left_.has_value() || *steps_left_ > 0);
}

bool FakeEngine::IsLive(const std::shared_ptr<Live>& live) const {
  const MutexLock lock(&mutex_);
  return std::find(live_.begin(), live_.end(), live) != live_.end();
}

void FakeEngine::Run() {
  while (true) {
    std::vector<std::shared_ptr<Live>> step;
    {
      const MutexLock lock(&mutex_);
      while (!is_stopping_ && !MayStep()) changed_.Wait(&mutex_);
      if (is_stopping_) return;
      if (steps_left_.has_value()) --*steps_left_;
      step = live_;
    }
    if (takes_newest_first) std::reverse(step.begin(), step.end());
    for (const std::shared_ptr<Live>& live : step) {
      if (!IsLive(live)) continue;  // It was cancelled meanwhile.
      if (!Advance(live.get())) continue;
      const MutexLock lock(&mutex_);
      std::erase(live_, live);
    }
    changed_.NotifyAll();
  }
}

bool FakeEngine::Advance(Live* live) {
  const Request& request = live->request;
  RequestSink& sink = *live->sink;
  if (!failure.ok()) {
    sink.OnFailed(failure);
    return true;
  }
  if (live->num_tokens == 0) {
    sink.OnStarted(0);
    if (request.sampling.num_prompt_logprobs >= 0 && request.prompt.size() > 1) {
      std::vector<ScoredToken> tokens;
      for (size_t i = 1; i < request.prompt.size(); ++i) {
        tokens.push_back(Scored(request.prompt[i], request.sampling.num_prompt_logprobs));
      }
      sink.OnPromptLogprobs(1, std::move(tokens));
    }
  }
  std::set<int> samples;
  {
    const MutexLock lock(&mutex_);
    samples = live->samples;
  }
  for (int sample_index : samples) AdvanceSample(live, sample_index);
  ++live->num_tokens;
  const MutexLock lock(&mutex_);
  return live->samples.empty();
}

void FakeEngine::AdvanceSample(Live* live, int sample_index) {
  const Request& request = live->request;
  for (const auto& continued : request.continued) {
    // The steps of tokens that the request has brought tell nothing.
    if (continued.sample_index == sample_index && live->num_tokens < static_cast<int>(continued.tokens.size())) return;
  }
  if (ending.has_value() && live->num_tokens == static_cast<int>(script.size())) {
    return FinishSample(live, sample_index, *ending);
  }
  if (request.sampling.pooling != Pooling::kNone) {
    live->sink->OnEmbedding({static_cast<float>(request.prompt.size()), static_cast<float>(request.prompt.front()),
                             static_cast<float>(request.prompt.back()), -1});
  }
  const TokenId token = NextToken(*live, sample_index);
  const int position = static_cast<int>(request.prompt.size()) + live->num_tokens;
  live->sink->OnToken(sample_index, position, Scored(token, request.sampling.num_logprobs));
  const auto& stops = request.stop_token_ids;
  const bool is_stop = std::find(stops.begin(), stops.end(), token) != stops.end();
  if (!is_stop && live->num_tokens + 1 < request.max_tokens) return;
  FinishSample(live, sample_index, is_stop ? FinishReason::kStopToken : FinishReason::kLength);
}

void FakeEngine::FinishSample(Live* live, int sample_index, FinishReason reason) {
  bool is_last;
  {
    const MutexLock lock(&mutex_);
    if (live->samples.erase(sample_index) == 0) return;  // Cancelled meanwhile.
    is_last = live->samples.empty();
  }
  live->sink->OnFinished({live->request.id, sample_index, reason, is_last});
}

TokenId FakeEngine::NextToken(const Live& live, int sample_index) const {
  if (live.num_tokens < static_cast<int>(script.size())) return script[live.num_tokens];
  uint64_t state = live.request.sampling.seed + sample_index + live.num_tokens;
  for (TokenId token : live.request.prompt) state = Mix(state + token);
  auto token = static_cast<TokenId>(Mix(state) % model_->vocab_size);
  const auto& stops = live.request.stop_token_ids;
  while (std::find(stops.begin(), stops.end(), token) != stops.end()) token = (token + 1) % model_->vocab_size;
  return token;
}

std::vector<Request> FakeEngine::requests() const {
  const MutexLock lock(&mutex_);
  return requests_;
}

size_t FakeEngine::most_running() const {
  const MutexLock lock(&mutex_);
  return most_running_;
}

std::vector<RequestId> FakeEngine::cancelled() const {
  const MutexLock lock(&mutex_);
  return cancelled_;
}

void FakeEngine::WaitUntilIdle() {
  const MutexLock lock(&mutex_);
  while (!live_.empty()) changed_.Wait(&mutex_);
}

void FakeEngine::WaitForRequests(size_t num_requests) {
  const MutexLock lock(&mutex_);
  while (requests_.size() < num_requests) changed_.Wait(&mutex_);
}

}  // namespace quire
