#include "serving/metrics_server.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/listen_address.h"
#include "prometheus/exposer.h"

namespace quire {
namespace {

absl::Status CannotServe(const std::string& address, const std::string& reason) {
  return absl::UnavailableError(absl::StrCat("cannot serve metrics on ", address, ": ", reason));
}

}  // namespace

absl::Status MetricsServer::Check(const std::string& address) {
  const std::string reason = WhyNotListening(address);
  return reason.empty() ? absl::OkStatus() : CannotServe(address, reason);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address) {
  // prometheus-cpp says by an exception, without a reason, that the address cannot be taken.
  try {
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::make_unique<prometheus::Exposer>(address)));
  } catch (const std::exception&) {
    const std::string reason = WhyNotListening(address);
    return CannotServe(address, reason.empty() ? "it was in use a moment ago" : reason);
  }
}

MetricsServer::MetricsServer(std::unique_ptr<prometheus::Exposer> exposer) : exposer_(std::move(exposer)) {}

MetricsServer::~MetricsServer() = default;

void MetricsServer::Add(std::shared_ptr<prometheus::Collectable> metrics) {
  metrics_.push_back(metrics);
  exposer_->RegisterCollectable(metrics);
}

int MetricsServer::port() const {
  const std::vector<int> ports = exposer_->GetListeningPorts();
  return ports.empty() ? 0 : ports.front();
}

}  // namespace quire
