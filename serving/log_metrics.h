// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_LOG_METRICS_H_
#define QUIRE_SERVING_LOG_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

namespace quire {

// The metrics of this process's log. Thread-safe.
class LogMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

}  // namespace quire

#endif  // QUIRE_SERVING_LOG_METRICS_H_
