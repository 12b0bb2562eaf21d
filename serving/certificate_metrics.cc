// SPDX-License-Identifier: Apache-2.0

#include "serving/certificate_metrics.h"

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "security/tls_files.h"

namespace quire {

std::vector<prometheus::MetricFamily> CertificateMetrics::Collect() const {
  prometheus::MetricFamily family;
  family.name = "quire_certificate_expiry_timestamp_seconds";
  family.help = "End of the validity of a certificate, in seconds since the Unix epoch; 0 if its file cannot be read";
  family.type = prometheus::MetricType::Gauge;
  for (const auto& [use, path] : files_) {
    if (path.empty()) continue;
    const absl::StatusOr<absl::Time> expiry = CertificateExpiry(path);
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"use", use}};
    metric.gauge.value = expiry.ok() ? static_cast<double>(absl::ToUnixSeconds(*expiry)) : 0;
  }
  return family.metric.empty() ? std::vector<prometheus::MetricFamily>() : std::vector{std::move(family)};
}

}  // namespace quire
