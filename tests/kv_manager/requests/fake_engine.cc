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
    std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FakeEngine::Hold() {
  std::lock_guard lock(mutex_);
  steps_left_ = 0;
}

void FakeEngine::Step(int num_steps) {
  {
    std::lock_guard lock(mutex_);
    steps_left_ = *steps_left_ + num_steps;
  }
  changed_.notify_all();
}

absl::Status FakeEngine::Submit(Request request, std::shared_ptr<RequestSink> sink) {
  if (before_submit) before_submit();
  if (!submit_status.ok()) return submit_status;
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(request);
    const int num_samples = request.beam.has_value() ? request.beam->num_return : request.num_samples;
    const auto live = std::make_shared<Live>(Live{std::move(request), std::move(sink)});
    for (int i = 0; i < num_samples; ++i) live->samples.insert(i);
    live_.push_back(live);
  }
  changed_.notify_all();
  return absl::OkStatus();
}

void FakeEngine::Cancel(RequestId request, FinishReason /*reason*/) {
  {
    std::lock_guard lock(mutex_);
    const auto it =
        std::find_if(live_.begin(), live_.end(), [&](const auto& live) { return live->request.id == request; });
    if (it == live_.end()) return;
    live_.erase(it);
    cancelled_.push_back(request);
  }
  changed_.notify_all();
}

void FakeEngine::CancelSample(RequestId request, int sample_index) {
  std::lock_guard lock(mutex_);
  for (const auto& live : live_) {
    if (live->request.id == request) live->samples.erase(sample_index);
  }
}

void FakeEngine::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [this] { return is_stopping_ || (!live_.empty() && (!steps_left_.has_value() || *steps_left_ > 0)); });
    if (is_stopping_) return;
    if (steps_left_.has_value()) --*steps_left_;
    const std::vector<std::shared_ptr<Live>> step = live_;
    for (const std::shared_ptr<Live>& live : step) {
      if (std::find(live_.begin(), live_.end(), live) == live_.end()) continue;  // Cancelled meanwhile.
      lock.unlock();
      const bool is_over = Advance(live.get());
      lock.lock();
      const auto it = std::find(live_.begin(), live_.end(), live);
      if (is_over && it != live_.end()) live_.erase(it);
    }
    changed_.notify_all();
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
    std::lock_guard lock(mutex_);
    samples = live->samples;
  }
  for (int sample_index : samples) AdvanceSample(live, sample_index);
  ++live->num_tokens;
  std::lock_guard lock(mutex_);
  return live->samples.empty();
}

void FakeEngine::AdvanceSample(Live* live, int sample_index) {
  const Request& request = live->request;
  if (ending.has_value() && live->num_tokens == static_cast<int>(script.size())) {
    return FinishSample(live, sample_index, *ending);
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
    std::lock_guard lock(mutex_);
    if (live->samples.erase(sample_index) == 0) return;  // Cancelled meanwhile.
    is_last = live->samples.empty();
  }
  live->sink->OnFinished({live->request.id, sample_index, reason, is_last});
}

TokenId FakeEngine::NextToken(const Live& live, int sample_index) const {
  if (live.num_tokens < static_cast<int>(script.size())) return script[live.num_tokens];
  uint64_t state = live.request.sampling.seed + sample_index + live.num_tokens;
  for (TokenId token : live.request.prompt) state = Mix(state + token);
  return static_cast<TokenId>(Mix(state) % model_->vocab_size);
}

std::vector<Request> FakeEngine::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<RequestId> FakeEngine::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

void FakeEngine::WaitUntilIdle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return live_.empty(); });
}

void FakeEngine::WaitForRequests(size_t num_requests) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return requests_.size() >= num_requests; });
}

}  // namespace quire
