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

// The line that --log-requests writes when a request is over: names, numbers and ids, never what was asked or said.
class RequestLog {
 public:
  // `clock` is borrowed; the request has come in now. `tenant` may be "".
  RequestLog(const Clock* clock, std::string name, std::string tenant, TraceSpan span)
      : clock_(clock),
        name_(std::move(name)),
        tenant_(std::move(tenant)),
        span_(std::move(span)),
        start_us_(clock->NowMicros()) {}

  // The first call counts. Thread-safe.
  void OnTokens();
  // Writes the line.
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
