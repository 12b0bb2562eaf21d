#ifndef QUIRE_SERVING_METRICS_SERVER_H_
#define QUIRE_SERVING_METRICS_SERVER_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "prometheus/collectable.h"
#include "serving/http_page.h"

struct mg_connection;
struct mg_context;

namespace quire {

// Serves Prometheus' /metrics and a few pages over HTTP until it is destroyed, which may take two seconds. GET and HEAD
// only: nothing here changes anything.
class MetricsServer {
 public:
  // What Start would most likely say now; for those who start it late.
  static absl::Status Check(const std::string& address);

  // `address` is host:port; port 0 takes a free one. UNAVAILABLE, with the reason, when it cannot be taken.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Shows these metrics, too.
  void Add(std::shared_ptr<prometheus::Collectable> metrics);

  // Shows `page` at `path`, such as "/status.json". What it borrows outlives the server.
  void AddPage(const std::string& path, HttpPage page);

  int port() const;

 private:
  MetricsServer() = default;

  static int OnRequest(mg_connection* connection);
  HttpResponse Respond(const std::string& method, const std::string& path, const HttpRequest& request) const;
  HttpResponse Metrics() const;

  mutable std::mutex mutex_;  // Guards the two below.
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics_;
  std::map<std::string, HttpPage> pages_;  // By path.
  mg_context* server_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_SERVING_METRICS_SERVER_H_
