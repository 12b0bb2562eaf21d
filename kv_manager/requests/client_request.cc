// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/client_request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <atomic>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "base/status_reason.h"
#include "kv_manager/requests/request_record.h"
#include "kv_manager/requests/request_trace.h"
#include "kv_manager/requests/tenancy.h"
#include "kv_manager/requests/unknown_fields.h"
#include "kv_manager/rpc/rpc_status.h"
#include "security/digest.h"

namespace quire {
namespace {

std::atomic<uint64_t> next_reader_id = 1;

// Requests that are equal have equal digests. The digest is in the record of the request, and the next manager compares
// it, too. The seed does not count, because a client that continues
// a request sends the seed that the manager has drawn.
Sha256Digest DigestOf(v1::GenerateRequest request) {
  request.clear_continue_from();
  request.clear_continue_numerics();
  request.mutable_sampling()->clear_seed();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&out);
  }
  return Sha256(bytes);
}

absl::Status HasLeft() {
  return absl::CancelledError("the client has left before the request began");
}

// A call of Generate gets it when it has found a request which was about to end.
absl::Status HasJustEnded() {
  return WithRetryDelay(
      WithReason(absl::UnavailableError("request_id: the request of this name has just ended"), "REQUEST_NOT_RUNNING"),
      /*delay_ms=*/100);
}

absl::Status CheckResume(const v1::ResumeRequest& request) {
  FieldErrors errors;
  CheckUnknownFields(request, "", &errors);
  return errors.empty() ? absl::OkStatus() : errors.ToStatus();
}

}  // namespace

ClientRequest::ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller,
                             const std::optional<TraceParent>& parent, v1::GenerateRequest request,
                             std::optional<v1::ResumeRequest> resume, ResponseWriter* writer,
                             std::function<void(std::function<void()>)> run_later)
    : environment_(environment),
      arrival_us_(environment->clock->NowMicros()),
      caller_(std::move(caller)),
      span_(environment->NewSpan(parent)),
      request_(std::move(request)),
      resume_(std::move(resume)),
      reader_id_(next_reader_id++),
      writer_(writer),
      run_later_(std::move(run_later)) {}

ClientRequest::ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller,
                             const std::optional<TraceParent>& parent, v1::GenerateRequest request,
                             ResponseWriter* writer, std::function<void(std::function<void()>)> run_later)
    : ClientRequest(environment, std::move(caller), parent, std::move(request), std::nullopt, writer,
                    std::move(run_later)) {}

ClientRequest::ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller,
                             const std::optional<TraceParent>& parent, v1::ResumeRequest request,
                             ResponseWriter* writer, std::function<void(std::function<void()>)> run_later)
    : ClientRequest(environment, std::move(caller), parent, v1::GenerateRequest(), std::move(request), writer,
                    std::move(run_later)) {}

bool ClientRequest::is_resumable() const {
  return request_.on_disconnect() == v1::ON_DISCONNECT_DETACH && environment_->resumable.is_enabled();
}

void ClientRequest::Start(int64_t deadline_us) {
  // A dead call does not take a stream from a live one.
  if (leaving() == Leaving::kLeaves) return EndCall(HasLeft());
  if (resume_.has_value()) return Resume();
  if (!is_resumable()) return StartNew(deadline_us);
  identity_.owner = OwnerOf(caller_);
  if (request_.request_id().empty()) return StartNew(deadline_us);
  identity_.name = request_.request_id();
  identity_.digest = DigestOf(request_);
  if (request_.sampling().has_seed()) identity_.seed = request_.sampling().seed();
  for (const v1::ContinuedSample& sample : request_.continue_from()) {
    identity_.continued.push_back(
        {.index = sample.index(), .num_tokens = sample.token_ids_size(), .has_finish = sample.has_finish()});
  }
  const bool may_come = environment_->is_restoring();
  const absl::StatusOr<std::shared_ptr<TokenStream>> same = environment_->resumable.FindSame(identity_);
  if (!same.ok()) return EndCall(same.status());
  if (*same == nullptr) return may_come ? EndCall(RestoringError()) : StartNew(deadline_us);
  const absl::Status status = TakeOver(*same);
  if (absl::IsNotFound(status)) return StartNew(deadline_us);  // The request has ended in this moment.
  if (!status.ok()) EndCall(status);
}

void ClientRequest::Resume() {
  if (const absl::Status status = DoResume(); !status.ok()) EndCall(status);
}

absl::Status ClientRequest::DoResume() {
  QUIRE_RETURN_IF_ERROR(CheckResume(*resume_));
  const bool may_come = environment_->is_restoring();
  const absl::StatusOr<std::shared_ptr<TokenStream>> found =
      environment_->resumable.Find(resume_->resume_token(), OwnerOf(caller_));
  const absl::Status status = found.ok() ? TakeOver(*found) : found.status();
  if (!absl::IsNotFound(status)) return status;
  if (may_come) return RestoringError();
  // The stream lacks tokens that the client has: the client continues another request of this name.
  if (found.ok()) (*found)->Drop(TakenOverError());
  return status;
}

std::shared_ptr<const std::string> ClientRequest::MakeRecord(uint64_t nonce, const ValidRequest& valid) const {
  const std::optional<SealKey>& key = environment_->options.detach.resume_key;
  if (!key.has_value()) return nullptr;
  const int64_t unix_minus_clock_us = absl::ToUnixMicros(absl::Now()) - environment_->clock->NowMicros();
  RequestRecord record{.identity = identity_,
                       .nonce = nonce,
                       .cache_salt = valid.request.cache_salt,
                       .arrival_unix_us = arrival_us_ + unix_minus_clock_us,
                       .pins = valid.request.pins,
                       .request = WithoutPrompt(request_, valid)};
  if (valid.request.deadline_us != kNever) record.deadline_unix_us = valid.request.deadline_us + unix_minus_clock_us;
  return std::make_shared<const std::string>(EncodeRequestRecord(record, *key));
}

absl::Status ClientRequest::TakeOver(const std::shared_ptr<TokenStream>& stream) {
  {
    const MutexLock lock(&mutex_);
    registration_ = environment_->registry.AwaitReader();
    stream_ = stream;
  }
  const auto received = resume_.has_value() ? resume_->received() : stream->ReceivedOf(identity_.continued);
  const absl::Status status = stream->Attach(Reader(), received);
  if (!status.ok()) {
    const MutexLock lock(&mutex_);
    stream_ = nullptr;
    registration_ = nullptr;
    return status;
  }
  if (const Leaving leaving = this->leaving(); leaving != Leaving::kStays) Leave(leaving == Leaving::kCancels);
  return absl::OkStatus();
}

void ClientRequest::StartNew(int64_t deadline_us) {
  if (leaving() != Leaving::kStays) return EndCall(HasLeft());
  absl::StatusOr<MadeRequest> made = MakeRequest(deadline_us);
  if (!made.ok()) return EndCall(made.status());
  const absl::StatusOr<std::shared_ptr<TokenStream>> found = MakeStream(&*made);
  if (!found.ok()) return EndCall(found.status());
  const std::shared_ptr<TokenStream>& stream = *found;
  if (stream != this->stream()) {
    absl::Status status = TakeOver(stream);
    if (absl::IsNotFound(status)) status = HasJustEnded();
    if (!status.ok()) EndCall(status);
    return;
  }

  // A client that has left before the request began does not get a request that outlives its call.
  if (leaving() != Leaving::kStays && stream->CloseIfAlone(reader_id_)) return StopWaiting();

  const RequestId id = stream->id();
  absl::Status status = Submit(*std::move(made), stream);
  if (!status.ok()) {
    StopWaiting();  // A drain waits only for the readers of requests that the engine has taken.
    if (is_resumable()) environment_->resumable.Remove(identity_, id);
    stream->OnFailed(std::move(status));
  }
  // An Abort, or a client that left, may have ended the stream before the engine knew the request.
  if (const Leaving leaving = this->leaving(); leaving != Leaving::kStays) Leave(leaving == Leaving::kCancels);
  if (stream->has_ended()) environment_->engine->Cancel(id, FinishReason::kCancelled);
}

absl::Status ClientRequest::Submit(MadeRequest made, const std::shared_ptr<TokenStream>& stream) {
  if (!made.valid.is_over()) return environment_->engine->Submit(std::move(made.valid.request), stream);
  stream->OnFinished({stream->id(), /*sample_index=*/0, FinishReason::kLength, /*ends_request=*/true});
  return absl::OkStatus();
}

absl::StatusOr<MadeRequest> ClientRequest::MakeRequest(int64_t deadline_us) {
  const uint64_t drawn_seed = environment_->random.Next();
  const GuideUser user = GuideUserOf(caller_, request_.cache_salt());
  const std::function<bool()> has_left = [this] { return leaving() != Leaving::kStays; };
  absl::StatusOr<MadeRequest> made;
  std::shared_ptr<const ServedModel> model;
  // A long text takes time to tokenize. If another generation is served by then, the text is tokenized again.
  for (int i = 0; i <= kMaxTokenizedAgain && (i == 0 || environment_->engine->model() != model); ++i) {
    model = environment_->engine->model();
    if (model == nullptr) return absl::UnavailableError("no worker has joined yet");
    made = RequestMaker(environment_).Make(request_, model, drawn_seed, user, &has_left);
  }
  if (!made.ok()) return made;
  QUIRE_RETURN_IF_ERROR(AssumeTenant(caller_, &made->valid.request));
  made->valid.request.arrival_us = arrival_us_;
  made->valid.request.deadline_us = deadline_us;
  return made;
}

absl::StatusOr<std::shared_ptr<TokenStream>> ClientRequest::MakeStream(MadeRequest* made) {
  std::string name = request_.request_id();
  if (name.empty()) name = absl::StrFormat("%016x", environment_->random.Next());
  absl::StatusOr<std::shared_ptr<TokenStream>> stream = MakeStream(made, name, is_resumable());
  // Without replay memory, the request runs as a non-resumable one.
  if (const auto reason = ReasonOf(stream.status()); reason.has_value() && reason->word == "REPLAY_MEMORY") {
    made->valid.request.record = nullptr;
    stream = MakeStream(made, name, /*is_kept=*/false);
  }
  if (absl::IsResourceExhausted(stream.status())) environment_->counts.Count(RpcRefusal::kTooManyRequests);
  return stream;
}

absl::StatusOr<std::shared_ptr<TokenStream>> ClientRequest::MakeStream(MadeRequest* made, const std::string& name,
                                                                       bool is_kept) {
  Request& request = made->valid.request;
  StreamOrigin origin;
  origin.name = name;
  origin.reader = Reader();
  origin.is_reachable = !request_.request_id().empty();
  origin.span = span_;
  origin.message = &request_;
  uint64_t nonce = 0;
  if (is_kept) {
    identity_.name = name;
    identity_.tenant = request.tenant;
    nonce = environment_->random.Next();
    request.record = MakeRecord(nonce, made->valid);
    origin.keeper = environment_->resumable.NewKeeper(identity_, request.id, nonce);
  } else {
    origin.on_end = [this] { FreeName(); };  // A kept stream may outlive this object, and its keeper frees the name.
  }
  const std::shared_ptr<TokenStream> stream = RequestMaker(environment_).MakeStream(*made, std::move(origin));
  // The lock is held, because an Abort may make the stream write as soon as it is registered, and another call may take
  // a kept one over.
  const MutexLock lock(&mutex_);
  if (is_kept) {
    QUIRE_ASSIGN_OR_RETURN(std::shared_ptr<TokenStream> kept,
                           environment_->resumable.Add(identity_, nonce, stream, &environment_->registry));
    if (kept != stream) return kept;
    registration_ = environment_->registry.AwaitReader();
  } else {
    QUIRE_ASSIGN_OR_RETURN(registration_,
                           environment_->registry.Register(OwnerOf(caller_), name, stream, request.tenant));
  }
  stream_ = stream;
  return stream;
}

void ClientRequest::EndCall(const absl::Status& status) {
  if (environment_->spans != nullptr && span_.is_sampled && !resume_.has_value()) {
    RequestTrace(environment_, span_, OperationOf(request_), arrival_us_).OnEnd({.code = status.code()});
  }
  writer_->EndCall(nullptr, status);
}

void ClientRequest::FreeName() {
  const MutexLock lock(&mutex_);
  registration_->FreeName();
}

void ClientRequest::StopWaiting() {
  const MutexLock lock(&mutex_);
  registration_->StopWaiting();
}

std::shared_ptr<TokenStream> ClientRequest::stream() {
  const MutexLock lock(&mutex_);
  return stream_;
}

ClientRequest::Leaving ClientRequest::leaving() {
  const MutexLock lock(&mutex_);
  return leaving_;
}

void ClientRequest::OnWritten(bool ok) {
  stream()->OnWritten(reader_id_, ok);
}

void ClientRequest::Leave(bool ends_request) {
  std::shared_ptr<TokenStream> stream;
  {
    const MutexLock lock(&mutex_);
    leaving_ = ends_request ? Leaving::kCancels : Leaving::kLeaves;
    stream = stream_;
  }
  if (stream == nullptr) return;
  stream->Close(reader_id_, ends_request);
}

}  // namespace quire
