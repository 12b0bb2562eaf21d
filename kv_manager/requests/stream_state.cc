// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/stream_state.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "kv_manager/requests/stream_errors.h"

namespace quire {
namespace {

absl::Status Left() {
  return absl::CancelledError("the client has ended it");
}

}  // namespace

StreamState::StreamState(StreamPositions positions, size_t max_outbox_tokens, bool is_resumable, StreamReader reader)
    : max_outbox_tokens_(max_outbox_tokens),
      positions_(std::move(positions)),
      client_{.reader = std::move(reader)},
      newest_reader_id_(client_.reader.id),
      is_resumable_(is_resumable) {}

StreamState::Actions StreamState::OnEvents(StreamEvents events) {
  for (const Finished& finished : events.finished) positions_.OnSampleEnded(finished.sample_index);
  if (!is_running()) return {};
  outbox_.Append(std::move(events));
  return Note();
}

StreamState::Actions StreamState::OnToken(int sample_index, int position, ScoredToken token) {
  if (!is_running()) return {};
  positions_.OnToken(sample_index, position);
  const size_t num_waiting = outbox_.tokens.size();
  const bool is_full = num_waiting >= max_outbox_tokens_;
  // A resumable stream continues without a client that reads too slowly. It gets more room for the time until a job has
  // removed the client.
  const bool loses_reader = is_full && is_resumable_ && is_waiting();
  const bool loses_request = is_full && (!is_resumable_ || num_waiting >= 2 * max_outbox_tokens_);
  if (loses_request) {
    outbox_.end = SlowReaderError(num_waiting, max_outbox_tokens_, /*ends_request=*/true);
  } else {
    outbox_.tokens.push_back({sample_index, std::move(token)});
  }
  Actions actions = Note();
  actions.cancels = loses_request;
  if (!loses_reader) return actions;
  const absl::Status status = SlowReaderError(num_waiting, max_outbox_tokens_, loses_request);
  actions.schedules_job |= NoteLeaver(client_.reader.id, status).schedules_job;
  return actions;
}

absl::StatusOr<StreamState::Actions> StreamState::Attach(
    StreamReader reader, google::protobuf::RepeatedPtrField<v1::ReceivedSample> received) {
  if (!is_resumable_ || phase_ >= Phase::kClosing) return UnknownRequestError();
  QUIRE_RETURN_IF_ERROR(positions_.Check(received, is_running()));
  // An older call may come late, when its client has given it up.
  if (reader.id < newest_reader_id_) return TakenOverError();
  newest_reader_id_ = reader.id;
  positions_.OnClientCame();
  Change& change = changes_.emplace_back();
  change.reader = std::move(reader);
  change.received = std::move(received);
  return Actions{.schedules_job = TakeJob()};
}

StreamState::Actions StreamState::Close(uint64_t reader_id, bool ends_request) {
  const bool comes = std::any_of(changes_.begin(), changes_.end(),
                                 [reader_id](const Change& change) { return change.reader.id == reader_id; });
  if (client_.reader.id != reader_id && !comes) return {};
  if (ends_request || !is_resumable_) return GiveUp(Left());
  return NoteLeaver(reader_id, Left());
}

std::optional<StreamState::Actions> StreamState::CloseIfAlone(uint64_t reader_id) {
  if (newest_reader_id_ != reader_id) return std::nullopt;
  return Actions{.schedules_job = GiveUp(Left()).schedules_job};  // The engine has not got the request yet.
}

StreamState::Actions StreamState::GiveUp(absl::Status status) {
  if (phase_ < Phase::kClosing) {
    phase_ = Phase::kClosing;
    close_status_ = std::move(status);
  }
  outbox_ = {};
  return {.cancels = true, .schedules_job = !is_waiting() && TakeJob()};
}

StreamState::Actions StreamState::Drop(absl::Status status) {
  if (phase_ == Phase::kOver) return {};
  Actions actions = GiveUp(std::move(status));
  phase_ = Phase::kDropped;
  actions.schedules_job |= TakeJob();
  return actions;
}

StreamState::Actions StreamState::OnWritten(uint64_t reader_id, bool ok) {
  if (client_.reader.id != reader_id || client_.write != Write::kUnderWay) return {};
  client_.write = ok ? Write::kDone : Write::kFailed;
  if (!TakeJob()) return {};
  client_.write = Write::kNone;
  Actions actions;
  if (!ok) actions = Close(reader_id, /*ends_request=*/false);
  actions.finishes_write = true;
  return actions;
}

StreamState::Step::Kind StreamState::Choose(const Content& content) const {
  using Kind = Step::Kind;
  const bool has_reader = client_.reader.writer != nullptr;
  if (!changes_.empty()) return changes_.front().leaver.has_value() ? Kind::kDetach : Kind::kAttach;
  if (client_.write == Write::kDone || client_.write == Write::kFailed) return Kind::kFinishWrite;
  if (client_.write == Write::kUnderWay && phase_ != Phase::kDropped) return Kind::kWait;
  if (phase_ >= Phase::kClosing) return Kind::kClose;
  if (content.has_end && is_told_ && !has_reader) return Kind::kWait;
  if (content.has_end && (!content.has_next || content.is_last)) return Kind::kEnd;
  if (content.has_next) return has_reader ? Kind::kWrite : Kind::kSkip;
  return content.has_unread || !outbox_.empty() ? Kind::kRead : Kind::kWait;
}

StreamState::Step StreamState::Next(const Content& content) {
  using Kind = Step::Kind;
  while (!changes_.empty() && changes_.front().leaver.value_or(client_.reader.id) != client_.reader.id) {
    changes_.pop_front();  // That call has lost the stream to another one.
  }
  Step step{.kind = Choose(content), .writer = client_.reader.writer};
  switch (step.kind) {
    case Kind::kAttach:
    case Kind::kDetach:
      // At once, so that Close finds the reader of the change at every moment.
      client_ = {.reader = std::move(changes_.front().reader)};
      step.received = std::move(changes_.front().received);
      step.status = std::move(changes_.front().status);
      changes_.pop_front();
      step.is_followed = HasAttach();
      break;
    case Kind::kFinishWrite:
      if (std::exchange(client_.write, Write::kNone) == Write::kFailed) {
        step.actions = Close(client_.reader.id, /*ends_request=*/false);
      }
      break;
    case Kind::kRead:
      step.events = std::exchange(outbox_, {});
      break;
    case Kind::kWrite:
      client_.write = Write::kUnderWay;
      step.actions.limits_write = LimitWrite();
      break;
    case Kind::kClose:
      step.status = close_status_;
      break;
    case Kind::kWait:
      has_job_ = false;
      step.actions.limits_write = is_waiting() && LimitWrite();
      break;
    case Kind::kSkip:
    case Kind::kEnd:
      break;
  }
  return step;
}

bool StreamState::Rest(const Content& content) {
  has_job_ = Choose(content) != Step::Kind::kWait;
  return !has_job_;
}

bool StreamState::StopGeneration() {
  if (is_running()) phase_ = Phase::kEnded;
  outbox_ = {};
  return !is_told_;
}

StreamState::Loss StreamState::OnNoMemory(StreamEvents* events, bool has_unread) {
  const bool has_reader = client_.reader.writer != nullptr;
  if (!HasAttach() && !(has_reader && has_unread)) {
    is_resumable_ = false;
    return has_reader ? Loss::kForgets : Loss::kEnds;
  }
  events->Append(std::exchange(outbox_, {}));
  if (phase_ < Phase::kClosing) outbox_ = std::move(*events);
  *events = {};
  return Loss::kWaits;
}

StreamState::Told StreamState::OnTold(bool is_kept) {
  Told told{.is_first = !std::exchange(is_told_, true), .writer = std::exchange(client_, {}).reader.writer};
  if (!is_kept) phase_ = Phase::kOver;
  return told;
}

bool StreamState::HasAttach() const {
  return std::any_of(changes_.begin(), changes_.end(), [](const Change& change) { return !change.leaver.has_value(); });
}

StreamState::Actions StreamState::Note() {
  Actions actions;
  if (outbox_.end.has_value()) {
    phase_ = Phase::kEnded;
    actions.limits_write = is_waiting() && LimitWrite();
  }
  actions.schedules_job = !is_waiting() && TakeJob();
  return actions;
}

StreamState::Actions StreamState::NoteLeaver(uint64_t reader_id, absl::Status status) {
  Change& change = changes_.emplace_back();
  change.leaver = reader_id;
  change.status = std::move(status);
  return {.schedules_job = TakeJob()};
}

}  // namespace quire
