#ifndef QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_
#define QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "gateway/web/web_server.h"

namespace quire {

// Counts the answers of the gateway, and renders them for Prometheus. Not thread-safe.
class GatewayMetrics {
 public:
  // Returns an exchange that counts the answer under `path`, which must be one of few. The metrics must outlive it.
  std::shared_ptr<WebExchange> Count(std::shared_ptr<WebExchange> exchange, const std::string& path);

  // Counts an answer to a request that was refused before its body had arrived.
  void CountRefusal(int code) { ++answers_[{"unread", code}]; }

  // The text of /metrics.
  std::string Page(const PortStats& port) const;

 private:
  class Counted;

  std::map<std::pair<std::string, int>, int64_t> answers_;  // By path and code.
  int64_t num_running_ = 0;
};

}  // namespace quire

#endif  // QUIRE_GATEWAY_PROCESS_GATEWAY_METRICS_H_
