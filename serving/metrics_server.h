#ifndef QUIRE_SERVING_METRICS_SERVER_H_
#define QUIRE_SERVING_METRICS_SERVER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "prometheus/collectable.h"
#include "serving/http_page.h"

struct mg_connection;
struct mg_context;

namespace quire {

// Serves Prometheus metrics at /metrics, and a few pages, over HTTP until it is destroyed. The destructor may take two
// seconds. It answers only GET and HEAD, which change nothing. Thread-safe.
class MetricsServer {
 public:
  // Checks whether Start would most likely succeed now. Use it early in a process that calls Start late.
  static absl::Status Check(const std::string& address);

  // `address` is host:port; port 0 takes a free one. Returns UNAVAILABLE with the reason when it cannot be taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Adds metrics to /metrics.
  void Add(std::shared_ptr<prometheus::Collectable> metrics);

  // Serves `page` at `path`, such as "/status.json". The objects that `page` refers to must outlive the server.
  void AddPage(const std::string& path, HttpPage page);

  int port() const;

 private:
  MetricsServer() = default;

  static int OnRequest(mg_connection* connection);
  HttpResponse Respond(const std::string& method, const std::string& path, const HttpRequest& request) const;
  HttpResponse Metrics() const;

  mutable Mutex mutex_;
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics_ QUIRE_GUARDED_BY(mutex_);
  std::map<std::string, HttpPage> pages_ QUIRE_GUARDED_BY(mutex_);  // By path.
  mg_context* server_ = nullptr;                                    // Constant after Start.
};

}  // namespace quire

#endif  // QUIRE_SERVING_METRICS_SERVER_H_
