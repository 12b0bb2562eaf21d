// SPDX-License-Identifier: Apache-2.0

#include "serving/watched_file_metrics.h"

namespace quire {

std::vector<prometheus::MetricFamily> WatchedFileMetrics::Collect() const {
  prometheus::MetricFamily family;
  family.name = "quire_file_valid";
  family.help =
      "1 while the contents of the file of this flag are in use; 0 while the file is missing or wrong, so that its "
      "former contents stay in use";
  family.type = prometheus::MetricType::Gauge;
  for (const WatchedFile* file : files_) {
    prometheus::ClientMetric& metric = family.metric.emplace_back();
    metric.label = {{"flag", file->flag()}};
    metric.gauge.value = file->is_valid() ? 1 : 0;
  }
  return family.metric.empty() ? std::vector<prometheus::MetricFamily>() : std::vector{std::move(family)};
}

}  // namespace quire
