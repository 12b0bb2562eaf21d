// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_PORT_METRICS_H_
#define QUIRE_SERVING_PORT_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <utility>
#include <vector>

#include "serving/acceptor.h"

namespace quire {

// The metrics of the gRPC ports of this process. Thread-safe.
class PortMetrics : public prometheus::Collectable {
 public:
  // Every scrape calls `read`.
  explicit PortMetrics(std::function<std::vector<PortStats>()> read) : read_(std::move(read)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<std::vector<PortStats>()> read_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_PORT_METRICS_H_
