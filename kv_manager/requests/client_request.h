// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
#define QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_maker.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"
#include "security/caller.h"

namespace quire {

// A client asks this of a stream, alone in its call or in a batch: to start a request, which is validated and
// submitted, or to resume one. A TokenStream writes the responses. It lives until the client has read the last
// response, or never will. A resumable stream outlives it. Thread-safe.
class ClientRequest {
 public:
  // `caller` is empty when callers need no token, `parent` when the caller sends no trace context. `environment` and
  // `writer` are borrowed; the writer and this object live until the writer's EndCall has returned. `run_later` is that
  // of TokenStream.
  ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller, const std::optional<TraceParent>& parent,
                v1::GenerateRequest request, ResponseWriter* writer,
                std::function<void(std::function<void()>)> run_later);
  // The same for a client that wants to resume a stream.
  ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller, const std::optional<TraceParent>& parent,
                v1::ResumeRequest request, ResponseWriter* writer,
                std::function<void(std::function<void()>)> run_later);

  // Validates and submits or resumes the request, or ends it by EndCall. May tokenize a long text. Called once, on any
  // thread; this object must outlive the call. `deadline_us` is that of a new request.
  void Start(int64_t deadline_us);

  // The client has left: ends the request, now or as soon as it has started. A resumable one continues.
  void Leave() { Leave(/*ends_request=*/false); }

  // The client has cancelled the request: ends it, even if it is resumable.
  void Cancel() { Leave(/*ends_request=*/true); }

  // The write under way is over. `ok` is false when the client has left.
  void OnWritten(bool ok);

  // The span of the caller's trace that this request is.
  const TraceSpan& span() const { return span_; }

 private:
  // Says how the client wants the request to end before its time.
  enum class Leaving { kStays, kLeaves, kCancels };

  // Exactly one of the messages is used.
  ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller, const std::optional<TraceParent>& parent,
                v1::GenerateRequest request, std::optional<v1::ResumeRequest> resume, ResponseWriter* writer,
                std::function<void(std::function<void()>)> run_later);

  void StartNew(int64_t deadline_us);
  // Gives the new request to the engine. If the client has all tokens already, tells the stream so.
  absl::Status Submit(MadeRequest made, const std::shared_ptr<TokenStream>& stream);
  // Takes the stream of another call over. On error, nothing has changed: NOT_FOUND when the stream is not kept any
  // more.
  absl::Status TakeOver(const std::shared_ptr<TokenStream>& stream);
  void Resume();
  absl::Status DoResume();  // An error ends the call.
  // Returns what the next manager must know of the request.
  std::shared_ptr<const std::string> MakeRecord(uint64_t nonce, const ValidRequest& valid) const;
  absl::StatusOr<MadeRequest> MakeRequest(int64_t deadline_us);
  // Makes and registers the stream of a new request. When the request runs already, returns the stream of that one.
  absl::StatusOr<std::shared_ptr<TokenStream>> MakeStream(MadeRequest* made);
  // The same, with a record and a keeper if `is_kept`.
  absl::StatusOr<std::shared_ptr<TokenStream>> MakeStream(MadeRequest* made, const std::string& name, bool is_kept);
  bool is_resumable() const;
  StreamReader Reader() { return {.writer = writer_, .run_later = run_later_, .id = reader_id_}; }
  // Ends the call of a request that has no stream.
  void EndCall(const absl::Status& status);
  void FreeName();
  void StopWaiting();
  std::shared_ptr<TokenStream> stream();
  Leaving leaving();
  void Leave(bool ends_request);

  RequestEnvironment* const environment_;
  const int64_t arrival_us_;  // Taken before the request is checked and its text is tokenized.
  const std::optional<Caller> caller_;
  const TraceSpan span_;
  const v1::GenerateRequest request_;
  const std::optional<v1::ResumeRequest> resume_;  // Set: there is no `request_`.
  const uint64_t reader_id_;
  ResponseWriter* const writer_;
  const std::function<void(std::function<void()>)> run_later_;
  ResumableRequests::Identity identity_;  // Set for a new resumable request. Used by Start.

  Mutex mutex_;
  std::shared_ptr<TokenStream> stream_ QUIRE_GUARDED_BY(mutex_);  // Set once, before other threads can find it.
  Leaving leaving_ QUIRE_GUARDED_BY(mutex_) = Leaving::kStays;
  // Set before stream_. While it exists, a drain waits for the client to read the end.
  std::unique_ptr<RequestRegistry::Registration> registration_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
