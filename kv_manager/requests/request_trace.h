// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_TRACE_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_TRACE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/span.h"
#include "base/trace_context.h"
#include "kv_manager/requests/request_environment.h"
#include "kv_manager/requests/request_maker.h"
#include "kv_manager/requests/token_stream.h"
#include "quire/v1/inference.pb.h"

namespace quire {

// The name of the operation in the spans of this request.
std::string OperationOf(const v1::GenerateRequest& message);

// The spans of one request: the request in this manager, below it the time in the queue until its first plan, and the
// time at each worker that it was placed on. They are exported when the request has ended. The attributes are those of
// OpenTelemetry for generative models; none has a prompt or output. Thread-safe.
class RequestTrace {
 public:
  // `environment` is borrowed. REQUIRES: it has a queue of spans, and `span` is sampled.
  RequestTrace(RequestEnvironment* environment, TraceSpan span, std::string operation, int64_t arrival_us);

  // The name of the request, what it asks for, and what it has become. Called before other threads know this object.
  void Describe(const std::string& name, const v1::GenerateRequest& message, const MadeRequest& made);
  void Describe(const v1::EmbedRequest& message, const ServedModel& model);

  // The request is at this worker from now on.
  void OnPlaced(const std::string& worker);
  // Its first plan is sent.
  void OnStarted();
  // Tokens have come; the first call sets the time to the first token.
  void OnTokens();
  // The request is over: exports the spans. Called once.
  void OnEnd(const StreamEnd& end);

 private:
  struct Visit {
    std::string worker;
    int64_t start_us;
  };

  int64_t UnixMicros(int64_t us) const { return us + unix_minus_clock_us_; }
  // Exports a span below that of the request.
  void AddChild(Span span) const;

  RequestEnvironment* const environment_;
  const TraceSpan context_;
  const std::string operation_;
  const int64_t arrival_us_;
  const int64_t unix_minus_clock_us_;
  std::string model_;
  std::vector<SpanAttribute> attributes_;

  Mutex mutex_;
  std::vector<Visit> visits_ QUIRE_GUARDED_BY(mutex_);
  std::optional<int64_t> started_us_ QUIRE_GUARDED_BY(mutex_);
  std::optional<int64_t> first_token_us_ QUIRE_GUARDED_BY(mutex_);
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_TRACE_H_
