// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_METRICS_METRIC_PAGE_H_
#define QUIRE_KV_MANAGER_METRICS_METRIC_PAGE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kv_manager/engine/histogram.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace quire {

using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Builds metric families: Begin starts a family, and the calls after it add its values. prometheus-cpp does not escape
// HELP texts, so they must be one line of ASCII without backslashes.
class MetricPage {
 public:
  void Begin(prometheus::MetricType type, std::string name, std::string help) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }

  // Adds a value to the latest family, which is a counter or a gauge.
  void Value(double value, MetricLabels labels = {}) {
    prometheus::ClientMetric& metric = Add(std::move(labels));
    if (families_.back().type == prometheus::MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
  }

  // Adds a histogram to the latest family.
  void Value(const Histogram& histogram, MetricLabels labels = {}) {
    prometheus::ClientMetric& metric = Add(std::move(labels));
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      count += histogram.counts()[i];
      const bool is_last = i == histogram.bounds().size();
      metric.histogram.bucket.push_back(
          {count, is_last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i]});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = histogram.sum();
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& Add(MetricLabels labels) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    metric.label = std::move(labels);
    return metric;
  }

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_METRIC_PAGE_H_
