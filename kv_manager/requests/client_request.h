#ifndef QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
#define QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "base/trace_context.h"
#include "kv_manager/engine/engine.h"
#include "kv_manager/requests/random_source.h"
#include "kv_manager/requests/request_registry.h"
#include "kv_manager/requests/request_validation.h"
#include "kv_manager/requests/rpc_counts.h"
#include "kv_manager/requests/token_stream.h"
#include "kv_manager/requests/unread_requests.h"
#include "quire/v1/inference.pb.h"
#include "security/token_file.h"

namespace quire {

// What all calls of Generate and GenerateBatch share. Outlives them.
struct GenerateEnvironment {
  Engine* engine;
  RequestRegistry* registry;
  UnreadRequests* unread;
  TokenFile* tokens;  // Null: callers need none.
  ThreadPool* output_threads;
  RandomSource* random;
  const Clock* clock;
  RequestLimits limits;
  size_t max_batch_requests;
  size_t max_message_bytes;
  size_t max_outbox_tokens;
  absl::Duration last_write_timeout;
  bool logs_requests;
  RpcCounts* counts;
  // Runs a job on so many bytes of text, now or on a thread for long texts; an error when it cannot.
  std::function<absl::Status(size_t, std::function<void()>)> run_on_text;
  std::atomic<uint64_t> next_request_id{1};
};

// The metadata of W3C Trace Context; nothing when the client sends none, several or a malformed one.
inline constexpr char kTraceparentKey[] = "traceparent";
std::optional<TraceParent> TraceParentOf(const grpc::ServerContextBase& context);

// When the call ends, which gRPC keeps in wall-clock time, on `clock`; the largest integer when it has no deadline.
int64_t DeadlineMicros(const grpc::ServerContextBase& context, const Clock& clock);

// One request of a client, alone in its call or one of a batch: validates, submits, and lets a TokenStream write. Lives
// until the client has its last response, or never will. Thread-safe.
class ClientRequest {
 public:
  // `caller` is who calls, if tokens say so, `parent` the trace it belongs to, if it says so. `writer` lives until the
  // call of its EndCall, and `this` as long; `run_later` is that of TokenStream.
  ClientRequest(GenerateEnvironment* environment, std::optional<Caller> caller,
                const std::optional<TraceParent>& parent, v1::GenerateRequest request, ResponseWriter* writer,
                std::function<void(std::function<void()>)> run_later)
      : environment_(environment),
        caller_(std::move(caller)),
        span_(
            StartSpan(parent, {environment->random->Next(), environment->random->Next(), environment->random->Next()})),
        request_(std::move(request)),
        writer_(writer),
        run_later_(std::move(run_later)) {}

  // Validates and submits the request, or ends it by EndCall. May tokenize a long text. Called once, on any thread;
  // `this` must outlive it.
  void Start(int64_t deadline_us);

  // The client has left, or wants no more of it: ends the request, now or as soon as it has started.
  void Cancel();

  // The write under way is over; not ok: the client has left.
  void OnWritten(bool ok);

  // That serves it.
  const TraceSpan& span() const { return span_; }

 private:
  absl::Status MakeStream(int64_t deadline_us, Request* request);
  std::shared_ptr<TokenStream> stream();
  absl::Status Submit(Request request, const std::shared_ptr<TokenStream>& stream);
  bool IsCancelled();

  GenerateEnvironment* const environment_;
  const std::optional<Caller> caller_;
  const TraceSpan span_;
  const v1::GenerateRequest request_;
  ResponseWriter* const writer_;
  const std::function<void(std::function<void()>)> run_later_;

  std::mutex mutex_;
  std::shared_ptr<TokenStream> stream_;  // Set once, before anybody else finds it. Guarded by mutex_, as is_cancelled_.
  bool is_cancelled_ = false;
  UnreadRequests::Hold unread_;  // Once the engine has taken the request. Guarded by mutex_.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_CLIENT_REQUEST_H_
