// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_REQUESTS_REQUEST_LOG_H_
#define QUIRE_KV_MANAGER_REQUESTS_REQUEST_LOG_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/trace_context.h"
#include "kv_manager/requests/token_stream.h"

namespace quire {

// Writes the line of --log-requests when a request is over. It has names, numbers and ids, but never a prompt or
// output.
class RequestLog {
 public:
  // The request has arrived now. `clock` is borrowed. `tenant` may be empty.
  RequestLog(const Clock* clock, std::string name, std::string tenant, TraceSpan span)
      : clock_(clock),
        name_(std::move(name)),
        tenant_(std::move(tenant)),
        span_(std::move(span)),
        start_us_(clock->NowMicros()) {}

  // Tokens have come; the first call sets the time to the first token. Thread-safe.
  void OnTokens();
  // The request is over: writes the line.
  void OnEnd(const StreamEnd& end) const;

 private:
  const Clock* const clock_;
  const std::string name_;
  const std::string tenant_;
  const TraceSpan span_;
  const int64_t start_us_;
  std::atomic<int64_t> first_token_us_{-1};
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_REQUESTS_REQUEST_LOG_H_
