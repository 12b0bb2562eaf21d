#ifndef QUIRE_SERVING_METRICS_SERVER_H_
#define QUIRE_SERVING_METRICS_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "prometheus/collectable.h"

namespace prometheus {
class Exposer;
}

namespace quire {

// Serves Prometheus' /metrics over HTTP until it is destroyed, which takes two seconds.
class MetricsServer {
 public:
  // What Start would most likely say now; for those who start it late.
  static absl::Status Check(const std::string& address);

  // `address` is host:port; port 0 takes a free one. UNAVAILABLE, with the reason, when it cannot be taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address);
  ~MetricsServer();

  // Shows these metrics, too.
  void Add(std::shared_ptr<prometheus::Collectable> metrics);

  int port() const;

 private:
  explicit MetricsServer(std::unique_ptr<prometheus::Exposer> exposer);

  std::vector<std::shared_ptr<prometheus::Collectable>> metrics_;  // The exposer does not own them.
  const std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_METRICS_SERVER_H_
