// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/token_stream.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "kv_manager/requests/stream_errors.h"

namespace quire {
namespace {

// A job reads at most about this many tokens before it lets others have the thread.
constexpr size_t kMaxJobTokens = 4096;

absl::Status Left() {
  return absl::CancelledError("the client has ended it");
}

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
      positions_(responses, environment_.num_promised_tokens),
      is_resumable_(environment_.keeper != nullptr),
      newest_reader_id_(reader.id),
      reader_(std::move(reader)),
      responses_(std::move(responses)),
      is_stopped_(responses_->num_samples()),
      is_reachable_(environment_.has_known_name) {
  if (environment_.keeper == nullptr) return;
  record_.emplace(*responses_);
  responses_->SetResumeToken(environment_.keeper->MakeResumeToken());
}

template <typename Add>
bool TokenStream::Post(Add add) {
  {
    const MutexLock lock(&mutex_);
    if (generation_ != Generation::kRunning) return false;
    add(&outbox_);
    if (!TakeNote()) return true;
  }
  ScheduleRun();
  return true;
}

bool TokenStream::TakeNote() {
  if (outbox_.end.has_value()) {
    generation_ = Generation::kEnded;
    if (delivery_ == Delivery::kWriting) LimitWrites();
  }
  if (delivery_ != Delivery::kIdle) return false;
  delivery_ = Delivery::kJob;
  return true;
}

bool TokenStream::TakeNote(Change change) {
  changes_.push_back(std::move(change));
  if (delivery_ != Delivery::kIdle && delivery_ != Delivery::kWriting) return false;
  delivery_ = Delivery::kJob;
  return true;
}

void TokenStream::ScheduleRun() {
  const auto& run_later = reader_.writer == nullptr ? environment_.run_later : reader_.run_later;
  run_later([self = shared_from_this()] { self->Run(); });
}

void TokenStream::LimitWrites() {
  if (!std::exchange(has_limited_writes_, true)) reader_.writer->LimitWrite();
}

void TokenStream::OnStarted(int num_cached_tokens) {
  Post([&](StreamEvents* outbox) { outbox->num_cached_tokens = num_cached_tokens; });
}

void TokenStream::OnPromptLogprobs(int first_position, std::vector<ScoredToken> tokens) {
  Post([&](StreamEvents* outbox) { outbox->prompt_logprobs.emplace_back(first_position, std::move(tokens)); });
}

void TokenStream::OnToken(int sample_index, int position, ScoredToken token) {
  bool loses_request;
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    QUIRE_CHECK_LT(sample_index, positions_.num_samples());
    if (generation_ != Generation::kRunning) return;
    positions_.OnToken(sample_index, position);
    const size_t num_waiting = outbox_.tokens.size();
    const bool is_full = num_waiting >= max_outbox_tokens_;
    // A resumable stream goes on without a client that reads too slowly. It gets more room for the time until a job has
    // removed the client.
    const bool loses_reader = is_full && is_resumable_ && delivery_ == Delivery::kWriting;
    loses_request = is_full && (!is_resumable_ || num_waiting >= 2 * max_outbox_tokens_);
    if (loses_request) {
      outbox_.end = SlowReaderError(num_waiting, max_outbox_tokens_, /*ends_request=*/true);
    } else {
      outbox_.tokens.push_back({sample_index, std::move(token)});
    }
    needs_job = loses_reader ? TakeNote({.reader = {},
                                         .received = {},
                                         .leaver = reader_.id,
                                         .status = SlowReaderError(num_waiting, max_outbox_tokens_, loses_request)})
                             : TakeNote();
  }
  if (needs_job) ScheduleRun();
  // On another thread, because the engine is calling.
  if (loses_request)
    environment_.run_later([engine = environment_.engine, id = id_] { engine->Cancel(id, FinishReason::kCancelled); });
}

void TokenStream::OnNumericsChanged(int sample_index, int position) {
  Post([&](StreamEvents* outbox) { outbox->numerics_changes.push_back({sample_index, position}); });
}

void TokenStream::OnFinished(const Finished& finished) {
  {
    const MutexLock lock(&mutex_);
    positions_.OnSampleEnded(finished.sample_index);
  }
  Post([&](StreamEvents* outbox) {
    outbox->finished.push_back(finished);
    if (finished.ends_request) outbox->end = absl::OkStatus();
  });
}

void TokenStream::OnFailed(absl::Status status) {
  Post([&](StreamEvents* outbox) { outbox->end = std::move(status); });
}

bool TokenStream::Abort() {
  const bool was_running = Post([](StreamEvents* outbox) { outbox->end = absl::OkStatus(); });
  if (was_running) environment_.engine->Cancel(id_, FinishReason::kCancelled);
  return was_running;
}

bool TokenStream::has_ended() const {
  const MutexLock lock(&mutex_);
  return generation_ != Generation::kRunning;
}

bool TokenStream::is_closed() const {
  const MutexLock lock(&mutex_);
  return generation_ == Generation::kClosed || delivery_ == Delivery::kOver;
}

absl::Status TokenStream::Attach(StreamReader reader, google::protobuf::RepeatedPtrField<v1::ReceivedSample> received,
                                 absl::Status refusal) {
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    if (!is_resumable_ || generation_ == Generation::kClosed || delivery_ == Delivery::kOver) {
      return UnknownRequestError();
    }
    QUIRE_RETURN_IF_ERROR(positions_.Check(received, generation_ == Generation::kRunning));
    // An older call may come late, when its client has given it up.
    if (reader.id < newest_reader_id_) return TakenOverError();
    newest_reader_id_ = reader.id;
    positions_.OnClientCame();
    needs_job = TakeNote({.reader = std::move(reader),
                          .received = std::move(received),
                          .leaver = std::nullopt,
                          .status = std::move(refusal)});
  }
  if (needs_job) ScheduleRun();
  return absl::OkStatus();
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
  return positions_.Check(received, generation_ == Generation::kRunning);
}

void TokenStream::LimitPromise(absl::Span<const int> num_tokens) {
  const MutexLock lock(&mutex_);
  positions_.LimitPromise(num_tokens);
}

int64_t TokenStream::NumTokens() const {
  const MutexLock lock(&mutex_);
  return positions_.NumTokens();
}

void TokenStream::Close(uint64_t reader_id, bool ends_request) {
  bool needs_job;
  bool is_over;
  {
    const MutexLock lock(&mutex_);
    const bool comes = std::any_of(changes_.begin(), changes_.end(),
                                   [reader_id](const Change& change) { return change.reader.id == reader_id; });
    if (reader_.id != reader_id && !comes) return;
    is_over = ends_request || !is_resumable_;
    needs_job =
        is_over ? TakeClose(Left()) : TakeNote({.reader = {}, .received = {}, .leaver = reader_id, .status = Left()});
  }
  if (is_over) environment_.engine->Cancel(id_, FinishReason::kCancelled);
  if (needs_job) ScheduleRun();
}

bool TokenStream::CloseIfAlone(uint64_t reader_id) {
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    if (newest_reader_id_ != reader_id) return false;
    needs_job = TakeClose(Left());
  }
  if (needs_job) ScheduleRun();
  return true;
}

void TokenStream::Drop(absl::Status status) {
  bool needs_job;
  {
    const MutexLock lock(&mutex_);
    if (delivery_ == Delivery::kOver) return;
    needs_job = TakeClose(std::move(status));
    is_dropped_ = true;
    // The write under way need not end first, because the writer can end the call at any time.
    if (delivery_ == Delivery::kWriting) {
      delivery_ = Delivery::kJob;
      needs_job = true;
    }
  }
  environment_.engine->Cancel(id_, FinishReason::kCancelled);
  if (needs_job) ScheduleRun();
}

bool TokenStream::TakeClose(absl::Status status) {
  if (generation_ != Generation::kClosed) drop_status_ = std::move(status);
  generation_ = Generation::kClosed;
  outbox_ = {};
  if (delivery_ != Delivery::kIdle) return false;
  delivery_ = Delivery::kJob;
  return true;
}

void TokenStream::OnWritten(uint64_t reader_id, bool ok) {
  {
    const MutexLock lock(&mutex_);
    if (reader_.id != reader_id || !is_writing_) return;
    written_ = ok;
    if (delivery_ != Delivery::kWriting) return;
    delivery_ = Delivery::kJob;
  }
  static_cast<void>(FinishWrite());
  if (!BecomeIdle()) ScheduleRun();
}

void TokenStream::Run() {
  size_t num_tokens = 0;
  while (true) {
    if (MakeChanges()) return ScheduleRun();  // The next job runs where the new reader wants it.
    if (!FinishWrite()) return;
    StreamEvents batch;
    const bool reads = !status_.has_value() && !responses_->has_next();
    std::optional<absl::Status> drop_status;
    {
      const MutexLock lock(&mutex_);
      if (generation_ == Generation::kClosed) {
        drop_status = drop_status_;
      } else if (!changes_.empty()) {
        continue;
      } else if (reads) {
        batch = std::exchange(outbox_, {});
      }
    }
    if (drop_status.has_value()) return Abandon(*drop_status);
    if (reads) status_ = ReadNext(std::move(batch), &num_tokens);
    const bool has_next = responses_.has_value() && responses_->has_next();
    if (!is_done() && status_.has_value() && (!has_next || responses_->is_last())) {
      End(has_next ? responses_->Next() : nullptr, *status_);
      if (!record_.has_value()) return;
    } else if (has_next && reader_.writer != nullptr) {
      Write();
      continue;
    } else if (has_next) {
      responses_->StartNext();
    }
    if (BecomeIdle()) return;
    if (num_tokens >= kMaxJobTokens) return ScheduleRun();
  }
}

void TokenStream::Write() {
  {
    const MutexLock lock(&mutex_);
    is_writing_ = true;
    if (generation_ != Generation::kRunning) LimitWrites();
  }
  is_reachable_ = true;
  reader_.writer->WriteResponse(responses_->Next());
}

bool TokenStream::FinishWrite() {
  bool ok;
  {
    const MutexLock lock(&mutex_);
    if (!is_writing_) return true;
    if (!written_.has_value()) {
      if (!changes_.empty() || is_dropped_) return true;
      delivery_ = Delivery::kWriting;
      if (generation_ != Generation::kRunning) LimitWrites();
      return false;
    }
    ok = *written_;
    is_writing_ = false;
    written_.reset();
  }
  responses_->StartNext();
  if (!ok) Close(reader_.id);
  return true;
}

bool TokenStream::BecomeIdle() {
  const MutexLock lock(&mutex_);
  if (!changes_.empty() || generation_ == Generation::kClosed) return false;
  if (!is_done()) {
    if (!outbox_.empty() || status_.has_value() || responses_->has_next()) return false;
    if (record_.has_value() && !record_->is_read()) return false;
  }
  delivery_ = Delivery::kIdle;
  return true;
}

bool TokenStream::MakeChanges() {
  bool is_attached = false;
  while (true) {
    Change change;
    StreamReader old;
    {
      // Under one lock, so that Close finds the reader of the change at every moment.
      const MutexLock lock(&mutex_);
      if (changes_.empty()) return is_attached;
      change = std::move(changes_.front());
      changes_.pop_front();
      if (change.leaver.has_value() && change.leaver != reader_.id) continue;
      old = ReplaceReader(std::move(change.reader));
    }
    is_attached = !change.leaver.has_value();
    if (is_attached) {
      StartReader(old, change.received);
    } else {
      EndReader(old, change.status);
    }
  }
}

void TokenStream::StartReader(const StreamReader& old,
                              const google::protobuf::RepeatedPtrField<v1::ReceivedSample>& received) {
  QUIRE_CHECK(record_.has_value());
  if (old.writer != nullptr) old.writer->EndCall(nullptr, TakenOverError());
  status_.reset();
  record_->Rewind();
  responses_.emplace(record_->first());
  responses_->SkipReceived(received);
  responses_->SetResumeToken(environment_.keeper->MakeResumeToken());
  environment_.keeper->OnAttached();
}

void TokenStream::EndReader(const StreamReader& old, const absl::Status& status) {
  old.writer->EndCall(nullptr, status);
  if (!record_.has_value() || !is_reachable_ || !environment_.keeper->OnDetached()) GiveUp(CannotWait());
}

StreamReader TokenStream::ReplaceReader(StreamReader reader) {
  has_limited_writes_ = false;
  is_writing_ = false;
  written_.reset();
  return std::exchange(reader_, std::move(reader));
}

void TokenStream::GiveUp(absl::Status status) {
  {
    const MutexLock lock(&mutex_);
    TakeClose(std::move(status));
  }
  environment_.engine->Cancel(id_, FinishReason::kCancelled);
}

void TokenStream::End(const v1::GenerateResponse* response, const absl::Status& status) {
  ReportEnd(status);
  if (record_.has_value()) {
    environment_.keeper->OnEnded(has_ended_well_);
  } else if (environment_.keeper != nullptr) {
    environment_.keeper->OnClosed();
  }
  StreamReader reader;
  std::vector<Change> refused;
  {
    const MutexLock lock(&mutex_);
    reader = ReplaceReader({});
    if (!record_.has_value()) {
      delivery_ = Delivery::kOver;
      refused = TakeAttaches();
    }
  }
  if (reader.writer != nullptr) reader.writer->EndCall(response, status);
  Refuse(refused);
  if (record_.has_value()) responses_.reset();  // The next reader gets new ones.
}

void TokenStream::Abandon(const absl::Status& status) {
  record_.reset();
  End(nullptr, status);
}

std::vector<TokenStream::Change> TokenStream::TakeAttaches() {
  std::vector<Change> attaches;
  for (Change& change : std::exchange(changes_, {})) {
    if (change.leaver.has_value()) {
      changes_.push_back(std::move(change));
    } else {
      attaches.push_back(std::move(change));
    }
  }
  return attaches;
}

void TokenStream::Refuse(const std::vector<Change>& attaches) {
  for (const Change& change : attaches) change.reader.writer->EndCall(nullptr, change.status);
}

void TokenStream::ReportEnd(const absl::Status& status) {
  if (std::exchange(has_reported_end_, true)) return;
  has_ended_well_ = status.ok() && !responses_->is_aborted();
  environment_.on_end(
      {.finish_reason = status.ok() ? responses_->finish_reasons() : absl::StatusCodeToString(status.code()),
       .prompt_tokens = responses_->num_prompt_tokens(),
       .cached_tokens = responses_->num_cached_tokens(),
       .output_tokens = responses_->num_output_tokens()});
}

std::optional<absl::Status> TokenStream::ReadNext(StreamEvents batch, size_t* num_tokens) {
  if (record_.has_value() && !environment_.keeper->Grow(batch.num_bytes())) {
    const bool is_replaying = reader_.writer != nullptr && !record_->is_read();
    if (is_replaying || !StopResuming()) {
      // The batch waits until that client has read the record.
      PutBack(std::exchange(batch, {}));
    } else if (reader_.writer == nullptr) {
      GiveUp(NoReplayMemoryError());
      return std::nullopt;
    } else {
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

bool TokenStream::StopResuming() {
  const MutexLock lock(&mutex_);
  const bool comes =
      std::any_of(changes_.begin(), changes_.end(), [](const Change& change) { return !change.leaver.has_value(); });
  if (!comes) is_resumable_ = false;
  return !comes;
}

void TokenStream::PutBack(StreamEvents batch) {
  const MutexLock lock(&mutex_);
  if (generation_ == Generation::kClosed) return;
  batch.Append(std::exchange(outbox_, {}));
  outbox_ = std::move(batch);
}

std::optional<absl::Status> TokenStream::Read(const StreamEvents& batch) {
  if (!batch.tokens.empty() && environment_.on_tokens != nullptr) environment_.on_tokens();
  if (batch.num_cached_tokens.has_value()) responses_->SetCachedTokens(*batch.num_cached_tokens);
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
    if (!has_reported_end_) StopGeneration(FinishReason::kCancelled);
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
        positions_.OnSampleEnded(sample_index);
      }
      environment_.engine->CancelSample(id_, sample_index);
    }
    return false;
  }
  if (!has_reported_end_) StopGeneration(FinishReason::kStopToken);
  return true;
}

void TokenStream::StopGeneration(FinishReason reason) {
  {
    const MutexLock lock(&mutex_);
    if (generation_ == Generation::kRunning) generation_ = Generation::kEnded;
    outbox_ = {};
  }
  environment_.engine->Cancel(id_, reason);
}

}  // namespace quire
