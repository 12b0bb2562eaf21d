// SPDX-License-Identifier: Apache-2.0

#include "serving/process_metrics.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_output.h"
#include "security/tls_files.h"

namespace quire {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily FamilyOf(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

MetricFamily CounterOf(const char* name, const char* help, int64_t value) {
  MetricFamily family = FamilyOf(name, help, MetricType::Counter);
  family.metric.emplace_back().counter.value = static_cast<double>(value);
  return family;
}

// A family without metrics is left out.
std::vector<MetricFamily> IfAny(MetricFamily family) {
  return family.metric.empty() ? std::vector<MetricFamily>() : std::vector{std::move(family)};
}

}  // namespace

std::vector<MetricFamily> CertificateMetrics::Collect() const {
  MetricFamily family =
      FamilyOf("quire_certificate_expiry_timestamp_seconds",
               "End of the validity of a certificate, in seconds since the Unix epoch; 0 if its file cannot be read",
               MetricType::Gauge);
  for (const auto& [use, path] : files_) {
    if (path.empty()) continue;
    const absl::StatusOr<absl::Time> expiry = CertificateExpiry(path);
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"use", use}};
    metric.gauge.value = expiry.ok() ? static_cast<double>(absl::ToUnixSeconds(*expiry)) : 0;
  }
  return IfAny(std::move(family));
}

std::vector<MetricFamily> LogMetrics::Collect() const {
  return {CounterOf("quire_log_lines_dropped_total",
                    "Lines of the log that were dropped because standard error did not take them",
                    NumDroppedLogLines())};
}

std::vector<MetricFamily> SpanMetrics::Collect() const {
  const SpanQueue::Counts counts = queue_->counts();
  return {CounterOf("quire_spans_exported_total", "Spans that the collector has taken", counts.num_exported),
          CounterOf("quire_spans_dropped_total",
                    "Spans that were dropped because the queue was full or the collector did not take them",
                    counts.num_dropped)};
}

std::vector<MetricFamily> WatchedFileMetrics::Collect() const {
  MetricFamily family =
      FamilyOf("quire_file_valid",
               "1 while the contents of the file of this flag are in use; 0 while the file is missing "
               "or wrong, so that its former contents stay in use",
               MetricType::Gauge);
  for (const WatchedFile* file : files_) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"flag", file->flag()}};
    metric.gauge.value = file->is_valid() ? 1 : 0;
  }
  return IfAny(std::move(family));
}

}  // namespace quire
