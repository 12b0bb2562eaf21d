#ifndef QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
#define QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/trace_context.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"
#include "security/caller.h"

namespace quire {

// One request of a client, alone in its call or one of a batch: validates and submits it, and lets a TokenStream write
// the responses. It lives until the client has read the last response, or never will. Thread-safe.
class ClientRequest {
 public:
  // `caller` is empty when callers need no token, `parent` when the caller sends no trace context. `environment` and
  // `writer` are borrowed; the writer and this object live until the writer's EndCall has returned. `run_later` is that
  // of TokenStream.
  ClientRequest(RequestEnvironment* environment, std::optional<Caller> caller, const std::optional<TraceParent>& parent,
                v1::GenerateRequest request, ResponseWriter* writer,
                std::function<void(std::function<void()>)> run_later);

  // Validates and submits the request, or ends it by EndCall. May tokenize a long text. Called once, on any thread;
  // this object must outlive the call.
  void Start(int64_t deadline_us);

  // The client has left, or has cancelled the request: ends it, now or as soon as it has started.
  void Cancel();

  // The write under way is over. `ok` is false when the client has left.
  void OnWritten(bool ok);

  // The span of the caller's trace that this request is.
  const TraceSpan& span() const { return span_; }

 private:
  absl::Status MakeStream(int64_t deadline_us, Request* request);
  std::shared_ptr<TokenStream> MakeTokenStream(const std::string& name, const ValidRequest& valid,
                                               std::shared_ptr<const ServedModel> model);
  void FreeName();
  void StopWaiting();
  std::shared_ptr<TokenStream> stream();
  bool IsCancelled();

  RequestEnvironment* const environment_;
  const int64_t arrival_us_;  // Before the request is checked and its text is tokenized.
  const std::optional<Caller> caller_;
  const TraceSpan span_;
  const v1::GenerateRequest request_;
  ResponseWriter* const writer_;
  const std::function<void(std::function<void()>)> run_later_;

  Mutex mutex_;
  std::shared_ptr<TokenStream> stream_ QUIRE_GUARDED_BY(mutex_);  // Set once, before other threads can find it.
  bool is_cancelled_ QUIRE_GUARDED_BY(mutex_) = false;
  // Set with stream_. While it exists, a drain waits for the client to read the end.
  std::unique_ptr<RequestRegistry::Registration> registration_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
