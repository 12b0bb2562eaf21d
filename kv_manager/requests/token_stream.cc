// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/token_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "kv_manager/requests/stream_errors.h"

namespace quire {
namespace {

// About the number of tokens that a job reads before it lets others have the thread.
constexpr size_t kMaxJobTokens = 4096;

absl::Status CannotWait() {
  return absl::CancelledError("the client has left, and the request cannot wait for it");
}

}  // namespace

TokenStream::TokenStream(Environment environment, RequestId id, ResponseSet responses, StreamReader reader)
    : environment_(std::move(environment)),
      id_(id),
      max_outbox_tokens_(std::max<size_t>(environment_.max_outbox_tokens, responses.max_step_tokens())),
      seed_(responses.seed()),
      num_prompt_tokens_(responses.num_prompt_tokens()),
      // Twice: the record has a copy, and so has its reader.
      num_first_bytes_(environment_.keeper == nullptr ? 0 : 2 * responses.num_bytes()),
      state_(StreamPositions(responses, environment_.num_promised_tokens), max_outbox_tokens_,
             /*is_resumable=*/environment_.keeper != nullptr, std::move(reader)),
      responses_(std::move(responses)),
      is_stopped_(responses_->num_samples()),
      is_reachable_(environment_.is_reachable) {
  if (environment_.keeper == nullptr) return;
  record_.emplace(*responses_);
  responses_->SetResumeToken(environment_.keeper->MakeResumeToken());
}

template <typename Event>
void TokenStream::Handle(Event event) {
  StreamState::Actions actions;
  const RunLater* run_later;
  {
    const MutexLock lock(&mutex_);
    actions = event(&state_);
    if (actions.limits_write) state_.reader().writer->LimitWrite();
    run_later = &JobRunner();
  }
  if (actions.cancels) environment_.engine->Cancel(id_, FinishReason::kCancelled);
  if (actions.schedules_job) Schedule(*run_later);
}

const TokenStream::RunLater& TokenStream::JobRunner() const {
  const StreamReader& reader = state_.reader();
  return reader.writer == nullptr ? environment_.run_later : reader.run_later;
}

void TokenStream::Schedule(const RunLater& run_later) {
  run_later([self = shared_from_this()] { self->Run(); });
}

void TokenStream::Schedule() {
  const RunLater* run_later;
  {
    const MutexLock lock(&mutex_);
    run_later = &JobRunner();
  }
  Schedule(*run_later);
}

void TokenStream::OnPlaced(const std::string& worker) {
  if (environment_.on_placed != nullptr) environment_.on_placed(worker);
}

void TokenStream::OnStarted(int num_cached_tokens) {
  if (environment_.on_started != nullptr) environment_.on_started();
  Handle([&](StreamState* state) { return state->OnEvents({.num_cached_tokens = num_cached_tokens}); });
}

void TokenStream::OnPinned(std::vector<int> num_tokens) {
  Handle([&](StreamState* state) { return state->OnEvents({.pinned_tokens = std::move(num_tokens)}); });
}

void TokenStream::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  StreamEvents events;
  events.prompt_logprobs.emplace_back(first_position, std::move(tokens));
  Handle([&](StreamState* state) { return state->OnEvents(std::move(events)); });
}

void TokenStream::OnToken(int sample_index, int position, ScoredToken token) {
  bool cancels = false;
  Handle([&](StreamState* state) {
    StreamState::Actions actions = state->OnToken(sample_index, position, std::move(token));
    cancels = std::exchange(actions.cancels, false);
    return actions;
  });
  // On another thread, because the engine is calling.
  if (cancels)
    environment_.run_later([engine = environment_.engine, id = id_] { engine->Cancel(id, FinishReason::kCancelled); });
}

void TokenStream::OnNumericsChanged(int sample_index, int position) {
  Handle([&](StreamState* state) { return state->OnEvents({.numerics_changes = {{sample_index, position}}}); });
}

void TokenStream::OnFinished(const Finished& finished) {
  StreamEvents events{.finished = {finished}};
  if (finished.ends_request) events.end = absl::OkStatus();
  Handle([&](StreamState* state) { return state->OnEvents(std::move(events)); });
}

void TokenStream::OnFailed(absl::Status status) {
  Handle([&](StreamState* state) { return state->OnEvents({.end = std::move(status)}); });
}

bool TokenStream::Abort() {
  bool was_running = false;
  Handle([&](StreamState* state) {
    was_running = state->is_running();
    StreamState::Actions actions = state->OnEvents({.end = absl::OkStatus()});
    actions.cancels = was_running;
    return actions;
  });
  return was_running;
}

bool TokenStream::has_ended() const {
  const MutexLock lock(&mutex_);
  return !state_.is_running();
}

bool TokenStream::is_closed() const {
  const MutexLock lock(&mutex_);
  return state_.phase() >= StreamState::Phase::kClosing;
}

absl::Status TokenStream::Attach(StreamReader reader, google::protobuf::RepeatedPtrField<v1::ReceivedSample> received) {
  absl::Status status;
  Handle([&](StreamState* state) {
    const absl::StatusOr<StreamState::Actions> actions = state->Attach(std::move(reader), std::move(received));
    status = actions.status();
    return actions.value_or(StreamState::Actions());
  });
  return status;
}

google::protobuf::RepeatedPtrField<v1::ReceivedSample> TokenStream::ReceivedOf(
    absl::Span<const SampleProgress> samples) const {
  google::protobuf::RepeatedPtrField<v1::ReceivedSample> received;
  for (const SampleProgress& sample : samples) {
    v1::ReceivedSample* const out = received.Add();
    out->set_index(sample.index);
    out->set_next_position(num_prompt_tokens_ + sample.num_tokens);
    out->set_has_finish(sample.has_finish);
  }
  return received;
}

absl::Status TokenStream::CheckReceived(const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received) const {
  const MutexLock lock(&mutex_);
  return state_.positions().Check(received, state_.is_running());
}

void TokenStream::LimitPromise(absl::Span<const int> num_tokens, bool is_over) {
  const MutexLock lock(&mutex_);
  state_.positions().LimitPromise(num_tokens, is_over);
}

int64_t TokenStream::NumTokens() const {
  const MutexLock lock(&mutex_);
  return state_.positions().NumTokens();
}

void TokenStream::Close(uint64_t reader_id, bool ends_request) {
  Handle([&](StreamState* state) { return state->Close(reader_id, ends_request); });
}

bool TokenStream::CloseIfAlone(uint64_t reader_id) {
  std::optional<StreamState::Actions> actions;
  Handle([&](StreamState* state) {
    actions = state->CloseIfAlone(reader_id);
    return actions.value_or(StreamState::Actions());
  });
  return actions.has_value();
}

void TokenStream::Drop(absl::Status status) {
  Handle([&](StreamState* state) { return state->Drop(std::move(status)); });
}

void TokenStream::OnWritten(uint64_t reader_id, bool ok) {
  bool finishes_write = false;
  Handle([&](StreamState* state) {
    const StreamState::Actions actions = state->OnWritten(reader_id, ok);
    finishes_write = actions.finishes_write;
    return actions;
  });
  if (!finishes_write) return;
  responses_->StartNext();
  const StreamState::Content content = this->content();
  bool rests;
  {
    const MutexLock lock(&mutex_);
    rests = state_.Rest(content);
  }
  if (!rests) Schedule();
}

StreamState::Content TokenStream::content() const {
  const bool has_next = responses_.has_value() && responses_->has_next();
  return {.has_next = has_next,
          .is_last = has_next && responses_->is_last(),
          .has_end = status_.has_value(),
          .has_unread = record_.has_value() && !record_->is_read()};
}

void TokenStream::Run() {
  using Kind = StreamState::Step::Kind;
  size_t num_tokens = 0;
  while (true) {
    StreamState::Step step;
    Handle([&, content = content()](StreamState* state) {
      step = state->Next(content);
      return step.actions;
    });
    switch (step.kind) {
      case Kind::kAttach:
        StartReader(step.writer, step.received);
        return Schedule();
      case Kind::kDetach:
        EndReader(step.writer, step.status, step.is_followed);
        break;
      case Kind::kRead:
        status_ = ReadNext(std::move(step.events), &num_tokens);
        if (num_tokens >= kMaxJobTokens) return Schedule();
        break;
      case Kind::kWrite:
        is_reachable_ = true;
        step.writer->WriteResponse(responses_->Next());
        break;
      case Kind::kSkip:
      case Kind::kFinishWrite:
        responses_->StartNext();
        break;
      case Kind::kEnd:
        End(responses_->has_next() ? responses_->Next() : nullptr, *status_);
        if (!record_.has_value()) return;
        responses_.reset();  // The next reader gets new ones.
        break;
      case Kind::kClose:
        record_.reset();
        return End(nullptr, step.status);
      case Kind::kWait:
        return;
    }
  }
}

void TokenStream::StartReader(ResponseWriter* old,
                              const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received) {
  QUIRE_CHECK(record_.has_value());
  if (old != nullptr) old->EndCall(nullptr, TakenOverError());
  status_.reset();
  record_->Rewind();
  responses_.emplace(record_->first());
  responses_->SkipReceived(received);
  responses_->SetResumeToken(environment_.keeper->MakeResumeToken());
  environment_.keeper->OnAttached();
}

void TokenStream::EndReader(ResponseWriter* old, const absl::Status& status, bool is_followed) {
  old->EndCall(nullptr, status);
  if (is_followed) return;
  if (!record_.has_value() || !is_reachable_ || !environment_.keeper->OnDetached()) GiveUp(CannotWait());
}

void TokenStream::GiveUp(absl::Status status) {
  Handle([&](StreamState* state) { return state->GiveUp(std::move(status)); });
}

void TokenStream::End(const v1::GenerateResponse* response, const absl::Status& status) {
  StreamState::Told told;
  {
    const MutexLock lock(&mutex_);
    told = state_.OnTold(/*is_kept=*/record_.has_value());
  }
  if (told.is_first) {
    has_ended_well_ = status.ok() && !responses_->is_aborted();
    environment_.on_end(
        {.finish_reason = status.ok() ? responses_->finish_reasons() : absl::StatusCodeToString(status.code()),
         .prompt_tokens = responses_->num_prompt_tokens(),
         .cached_tokens = responses_->num_cached_tokens(),
         .output_tokens = responses_->num_output_tokens(),
         .code = status.code()});
  }
  if (record_.has_value()) {
    environment_.keeper->OnEnded(has_ended_well_);
  } else if (environment_.keeper != nullptr) {
    environment_.keeper->OnClosed();
  }
  if (told.writer != nullptr) told.writer->EndCall(response, status);
}

std::optional<absl::Status> TokenStream::ReadNext(StreamEvents batch, size_t* num_tokens) {
  if (record_.has_value() && !environment_.keeper->Grow(batch.num_bytes())) {
    StreamState::Loss loss;
    {
      const MutexLock lock(&mutex_);
      loss = state_.OnNoMemory(&batch, /*has_unread=*/!record_->is_read());
    }
    if (loss == StreamState::Loss::kEnds) {
      GiveUp(NoReplayMemoryError());
      return std::nullopt;
    }
    if (loss == StreamState::Loss::kForgets) {
      environment_.keeper->OnForgotten();
      record_.reset();
    }
  }
  if (!record_.has_value()) return Read(batch);
  const StreamEvents next = record_->AppendAndRead(std::move(batch), std::min(max_outbox_tokens_, kMaxJobTokens));
  *num_tokens += next.tokens.size();
  const std::optional<absl::Status> status = Read(next);
  if (status.has_value()) record_->SetEnd(*status);
  return status;
}

std::optional<absl::Status> TokenStream::Read(const StreamEvents& batch) {
  if (!batch.tokens.empty() && environment_.on_tokens != nullptr) environment_.on_tokens();
  if (batch.num_cached_tokens.has_value()) responses_->SetCachedTokens(*batch.num_cached_tokens);
  if (batch.pinned_tokens.has_value()) responses_->SetPinnedTokens(*batch.pinned_tokens);
  for (const auto& [first_position, tokens] : batch.prompt_logprobs) {
    responses_->AddPromptLogprobs(first_position, tokens);
  }
  for (const auto& [sample_index, position] : batch.numerics_changes) {
    responses_->SetNumericsChange(sample_index, position);
  }
  std::vector<int> stopped;
  for (const auto& [sample_index, token] : batch.tokens) {
    if (responses_->AddToken(sample_index, token)) stopped.push_back(sample_index);
  }
  for (const Finished& finished : batch.finished) responses_->FinishSample(finished);

  std::optional<absl::Status> status = batch.end;
  if ((!status.has_value() || status->ok()) && responses_->contradicts_client()) {
    StopGeneration(FinishReason::kCancelled);
    status = UnknownRequestError();
  }
  if (!status.has_value() && StopSamples(stopped)) status = absl::OkStatus();
  if (status.has_value()) responses_->End(/*is_whole=*/status->ok());
  return status;
}

bool TokenStream::StopSamples(const std::vector<int>& sample_indices) {
  if (!responses_->are_all_finished()) {
    for (int sample_index : sample_indices) {
      if (is_stopped_[sample_index]) continue;  // Read again for another reader.
      is_stopped_[sample_index] = true;
      {
        const MutexLock lock(&mutex_);
        state_.positions().OnSampleEnded(sample_index);
      }
      environment_.engine->CancelSample(id_, sample_index);
    }
    return false;
  }
  StopGeneration(FinishReason::kStopToken);
  return true;
}

void TokenStream::StopGeneration(FinishReason reason) {
  bool cancels;
  {
    const MutexLock lock(&mutex_);
    cancels = state_.StopGeneration();
  }
  if (cancels) environment_.engine->Cancel(id_, reason);
}

}  // namespace quire
