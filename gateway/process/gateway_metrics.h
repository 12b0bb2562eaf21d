// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_
#define QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/span_queue.h"
#include "gateway/openai/field_reader.h"
#include "gateway/web/web_server.h"

namespace quire {

// Counts the answers of the gateway, and renders them for Prometheus. Not thread-safe.
class GatewayMetrics {
 public:
  // Work for the model counts as running. What only looks at the gateway does not, or a gateway at rest would show its
  // own observers.
  enum class Kind { kWork, kLook };

  // Returns an exchange that counts the answer under `path`, which must be one of few. The metrics must outlive it.
  std::shared_ptr<WebExchange> Count(std::shared_ptr<WebExchange> exchange, const std::string& path, Kind kind);

  // Counts an answer to a request that was refused before its body had arrived, under `path`, which must be one of few.
  void CountRefusal(const std::string& path, int code) { ++answers_[{path, code}]; }

  // Counts and logs the unknown fields of a request that were ignored. Its path is one of few.
  void CountIgnored(const WebRequest& request, const IgnoredFields& ignored);

  // Logs a request that got an error.
  void LogFailure(const WebRequest& request, const std::string& path, const WebResponse& response);

  // The text of /metrics. `spans` is null when none are exported.
  std::string Page(const PortStats& port, const SpanQueue* spans) const;

 private:
  class Counted;

  // The upper bounds of the buckets of the time until a stream begins, in seconds.
  static constexpr std::array<double, 12> kStreamStartBounds = {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60};

  void CountStreamStart(const std::string& path, std::chrono::steady_clock::duration time);

  struct StreamStarts {
    std::array<int64_t, kStreamStartBounds.size() + 1> buckets = {};  // The last one has no bound.
    double sum_s = 0;
  };

  std::map<std::pair<std::string, int>, int64_t> answers_;  // The key is the path and the code.
  std::map<std::string, StreamStarts> stream_starts_;       // The key is the path.
  std::map<std::string, int64_t> ignored_fields_;           // The key is the path.
  int64_t num_running_ = 0;
  LogLimiter log_limiter_{10};
  LogLimiter ignored_limiter_{1};
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_
