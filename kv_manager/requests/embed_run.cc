// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/embed_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/requests/embed_validation.h"
#include "kv_manager/requests/request_maker.h"
#include "kv_manager/requests/request_trace.h"
#include "kv_manager/requests/tenancy.h"

namespace quire {
namespace {

// Returns the same error with the name of the input.
absl::Status OfInput(size_t index, const absl::Status& status) {
  absl::Status named(status.code(), absl::StrCat("inputs[", index, "]: ", status.message()));
  status.ForEachPayload(
      [&named](absl::string_view type, const absl::Cord& payload) { named.SetPayload(type, payload); });
  return named;
}

}  // namespace

// The engine's view of an input. Its calls come from a step loop.
class EmbedRun::InputSink : public RequestSink {
 public:
  InputSink(std::shared_ptr<EmbedRun> run, size_t index) : run_(std::move(run)), index_(index) {}

  void OnStarted(int num_cached_tokens) override { run_->OnStarted(index_, num_cached_tokens); }
  void OnPromptLogprobs(int /*first_position*/, std::vector<ScoredToken> /*tokens*/) override {}
  void OnEmbedding(std::vector<float> values) override { run_->OnEmbedding(index_, std::move(values)); }
  void OnToken(int /*sample_index*/, int /*position*/, ScoredToken /*token*/) override {}
  void OnNumericsChanged(int /*sample_index*/, int /*position*/) override {}
  void OnFinished(const Finished& /*finished*/) override { run_->OnEnded(index_, absl::OkStatus()); }
  void OnFailed(absl::Status status) override { run_->OnEnded(index_, std::move(status)); }

 private:
  const std::shared_ptr<EmbedRun> run_;
  const size_t index_;
};

EmbedRun::EmbedRun(RequestEnvironment* environment, std::optional<Caller> caller,
                   const std::optional<TraceParent>& parent, v1::EmbedRequest request, int64_t deadline_us, Done done)
    : environment_(environment),
      caller_(std::move(caller)),
      span_(environment->NewSpan(parent)),
      request_(std::move(request)),
      arrival_us_(environment->clock->NowMicros()),
      deadline_us_(deadline_us),
      done_(std::move(done)) {}

EmbedRun::~EmbedRun() {
  environment_->num_embed_inputs -= num_places_;
}

void EmbedRun::Start() {
  if (const absl::Status status = Prepare(); !status.ok()) {
    const MutexLock lock(&mutex_);
    status_.Update(status);
  }
  Advance();
}

absl::Status EmbedRun::Prepare() {
  const auto num_inputs = static_cast<size_t>(request_.inputs_size());
  const size_t max_requests = environment_->options.max_requests;
  num_places_ = num_inputs;
  if ((environment_->num_embed_inputs += num_inputs) > max_requests) {
    environment_->counts.Count(RpcRefusal::kTooManyRequests);
    return WithReason(absl::ResourceExhaustedError(
                          absl::StrCat("the calls of Embed have ", max_requests, " inputs or more (--max-requests)")),
                      "TOO_MANY_REQUESTS", {{"max_requests", absl::StrCat(max_requests)}});
  }
  registration_ = environment_->registry.AwaitReader();
  // Texts take time to tokenize. If another generation is served by then, they are tokenized again.
  std::shared_ptr<const ServedModel> model;
  absl::Status made;
  for (int i = 0; i <= kMaxTokenizedAgain && (i == 0 || environment_->engine->model() != model); ++i) {
    model = environment_->engine->model();
    if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
    made = MakeInputs(model);
  }
  QUIRE_RETURN_IF_ERROR(made);
  if (environment_->options.logs_requests) {
    const MutexLock lock(&mutex_);
    log_.emplace(environment_->clock, absl::StrFormat("%016x", environment_->random.Next()),
                 inputs_.front().request.tenant, span_);
  }
  return absl::OkStatus();
}

absl::Status EmbedRun::MakeInputs(const std::shared_ptr<const ServedModel>& model) {
  QUIRE_RETURN_IF_ERROR(ValidateEmbed(request_, *model, environment_->options));
  const std::function<bool()> has_left = [this] {
    const MutexLock lock(&mutex_);
    return !status_.ok();
  };
  RequestLimits limits = environment_->options.limits;
  limits.has_left = &has_left;
  std::vector<Input> inputs;
  for (int i = 0; i < request_.inputs_size(); ++i) {
    if (has_left()) return absl::CancelledError("the client has left");
    QUIRE_ASSIGN_OR_RETURN(Request request, MakeEmbedInput(request_, i, *model, limits));
    QUIRE_RETURN_IF_ERROR(AssumeTenant(caller_, &request));
    request.id = environment_->registry.NextId();
    request.arrival_us = arrival_us_;
    request.deadline_us = deadline_us_;
    const auto num_tokens = static_cast<int>(request.prompt.size());
    inputs.push_back({.request = std::move(request), .values = {}, .num_prompt_tokens = num_tokens});
  }
  model_ = model;
  const MutexLock lock(&mutex_);
  inputs_ = std::move(inputs);
  return absl::OkStatus();
}

void EmbedRun::Leave() {
  {
    const MutexLock lock(&mutex_);
    status_.Update(absl::CancelledError("the client has left"));
  }
  Schedule();
}

void EmbedRun::OnStarted(size_t index, int num_cached_tokens) {
  const MutexLock lock(&mutex_);
  if (!is_over_) inputs_[index].num_cached_tokens = num_cached_tokens;
}

void EmbedRun::OnEmbedding(size_t index, std::vector<float> values) {
  const MutexLock lock(&mutex_);
  if (!is_over_) inputs_[index].values = std::move(values);
}

void EmbedRun::OnEnded(size_t index, absl::Status status) {
  {
    const MutexLock lock(&mutex_);
    if (is_over_) return;  // The engine has not seen the cancel yet.
    NoteEnd(index, std::move(status));
  }
  Schedule();
}

// A limit of the engine, such as a full queue or the limit of the tenant, may leave room for fewer inputs at a time.
void EmbedRun::NoteEnd(size_t index, absl::Status status) {
  inputs_[index].is_in_engine = false;
  --num_in_engine_;
  if (status.ok()) {
    ++num_done_;
  } else if (absl::IsResourceExhausted(status) && num_in_engine_ > 0) {
    max_in_engine_ = std::min(max_in_engine_, num_in_engine_);
    again_.push_back(index);
  } else {
    status_.Update(inputs_.size() == 1 ? std::move(status) : OfInput(index, status));
  }
}

void EmbedRun::Schedule() {
  {
    const MutexLock lock(&mutex_);
    if (is_over_ || std::exchange(has_job_, true)) return;
  }
  environment_->text_threads.RunOutput([run = shared_from_this()] { run->Advance(); });
}

std::optional<size_t> EmbedRun::TakeNext() {
  if (num_in_engine_ >= max_in_engine_) return std::nullopt;
  size_t index = next_;
  if (!again_.empty()) {
    index = again_.back();
    again_.pop_back();
  } else if (next_ < inputs_.size()) {
    ++next_;
  } else {
    return std::nullopt;
  }
  inputs_[index].is_in_engine = true;
  ++num_in_engine_;
  return index;
}

void EmbedRun::Advance() {
  while (true) {
    std::optional<size_t> index;
    Request request;
    absl::Status status;
    {
      const MutexLock lock(&mutex_);
      status = status_;
      const bool is_complete = status.ok() && num_done_ == inputs_.size();
      if (status.ok() && !is_complete) {
        index = TakeNext();
        if (!index.has_value()) {
          has_job_ = false;
          return;
        }
        request = inputs_[*index].request;
      } else {
        is_over_ = true;
      }
    }
    if (!index.has_value()) return End(status);
    const absl::Status submitted =
        environment_->engine->Submit(std::move(request), std::make_shared<InputSink>(shared_from_this(), *index));
    if (submitted.ok()) continue;
    const MutexLock lock(&mutex_);
    NoteEnd(*index, submitted);
  }
}

void EmbedRun::End(const absl::Status& status) {
  std::vector<RequestId> running;
  {
    const MutexLock lock(&mutex_);
    for (const Input& input : inputs_) {
      if (input.is_in_engine) running.push_back(input.request.id);
    }
  }
  for (const RequestId id : running) environment_->engine->Cancel(id, FinishReason::kCancelled);
  v1::EmbedResponse response;
  {
    const MutexLock lock(&mutex_);
    StreamEnd end{.finish_reason = status.ok() ? "embedded" : absl::StatusCodeToString(status.code()),
                  .prompt_tokens = 0,
                  .cached_tokens = 0,
                  .output_tokens = 0};
    for (const Input& input : inputs_) {
      end.prompt_tokens += input.num_prompt_tokens;
      end.cached_tokens += input.num_cached_tokens;
    }
    if (status.ok()) response = MakeResponse();
    end.code = status.code();
    if (log_.has_value()) log_->OnEnd(end);
    if (environment_->spans != nullptr && span_.is_sampled) {
      RequestTrace trace(environment_, span_, "embeddings", arrival_us_);
      if (model_ != nullptr) trace.Describe(request_, *model_);
      trace.OnEnd(end);
    }
    inputs_.clear();
  }
  environment_->num_embed_inputs -= std::exchange(num_places_, 0);
  done_(status, response);
}

v1::EmbedResponse EmbedRun::MakeResponse() const {
  v1::EmbedResponse response;
  response.set_numerics_fingerprint(model_->numerics_fingerprint);
  const bool normalizes = request_.has_normalize() ? request_.normalize() : model_->pooling.normalizes;
  for (const Input& input : inputs_) {
    v1::Embedding* const embedding = response.add_embeddings();
    SetValues(input.values, request_.has_dimensions() ? request_.dimensions() : input.values.size(), normalizes,
              embedding);
    embedding->set_prompt_tokens(static_cast<uint32_t>(input.num_prompt_tokens));
    embedding->set_cached_tokens(static_cast<uint32_t>(input.num_cached_tokens));
  }
  return response;
}

}  // namespace quire
