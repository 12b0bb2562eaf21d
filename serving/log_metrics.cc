// SPDX-License-Identifier: Apache-2.0

#include "serving/log_metrics.h"

#include "base/log_output.h"

namespace quire {

std::vector<prometheus::MetricFamily> LogMetrics::Collect() const {
  prometheus::MetricFamily dropped;
  dropped.name = "quire_log_lines_dropped_total";
  dropped.help = "Lines of the log that were dropped because standard error did not take them";
  dropped.type = prometheus::MetricType::Counter;
  dropped.metric.emplace_back().counter.value = static_cast<double>(NumDroppedLogLines());
  return {dropped};
}

}  // namespace quire
