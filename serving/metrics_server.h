// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_METRICS_SERVER_H_
#define QUIRE_SERVING_METRICS_SERVER_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/web_access.h"
#include "prometheus/collectable.h"
#include "serving/acceptor.h"
#include "serving/http_connection.h"
#include "serving/http_head.h"
#include "serving/http_page.h"

namespace quire {

// Serves Prometheus metrics at /metrics, and a few pages, over HTTP until it is destroyed. It answers only GET and
// HEAD, which change nothing. Each connection has one request and a thread of its own. A request must arrive, and its
// response must be read, within a time; the number of connections is limited, in total and per address. So slow clients
// cannot keep others out. Thread-safe.
class MetricsServer {
 public:
  // `address` is host:port; port 0 takes a free one. Returns UNAVAILABLE with the reason when it cannot be taken.
  // Requests of web pages of other sites and for other hosts get 403, see CheckWebRules.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address, WebAccess access = {});
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  void Add(std::shared_ptr<prometheus::Collectable> metrics);

  // Serves `page` at `path`, such as "/status.json". The objects that `page` refers to must outlive the server.
  void AddPage(const std::string& path, HttpPage page);

  int port() const { return acceptor_->port(); }

 private:
  explicit MetricsServer(WebAccess access) : access_(std::move(access)) {}

  // Starts a thread for a connection.
  void Take(int fd, const std::string& peer);
  // Serves the request of a connection, on its own thread, and closes it.
  void Serve(int fd, const std::string& peer);
  HttpResponse Respond(const HttpHead& head, const std::string& peer) const;
  HttpResponse Metrics() const;

  const WebAccess access_;
  mutable Mutex mutex_;
  CondVar ended_;  // Signalled when a thread of a connection has ended.
  std::vector<std::shared_ptr<prometheus::Collectable>> metrics_ QUIRE_GUARDED_BY(mutex_);
  std::map<std::string, HttpPage> pages_ QUIRE_GUARDED_BY(mutex_);  // By path.
  std::set<int> open_ QUIRE_GUARDED_BY(mutex_);                     // The sockets of connections.
  std::unique_ptr<Acceptor> acceptor_;                              // Constant after Start.
};

}  // namespace quire

#endif  // QUIRE_SERVING_METRICS_SERVER_H_
