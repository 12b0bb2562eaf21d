// SPDX-License-Identifier: Apache-2.0

#include "serving/span_metrics.h"

#include <cstdint>

namespace quire {
namespace {

prometheus::MetricFamily CounterOf(const char* name, const char* help, int64_t value) {
  prometheus::MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = prometheus::MetricType::Counter;
  family.metric.emplace_back().counter.value = static_cast<double>(value);
  return family;
}

}  // namespace

std::vector<prometheus::MetricFamily> SpanMetrics::Collect() const {
  const SpanQueue::Counts counts = queue_->counts();
  return {CounterOf("quire_spans_exported_total", "Spans that the collector has taken", counts.num_exported),
          CounterOf("quire_spans_dropped_total",
                    "Spans that were dropped because the queue was full or the collector did not take them",
                    counts.num_dropped)};
}

}  // namespace quire
