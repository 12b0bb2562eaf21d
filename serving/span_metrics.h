// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_SPAN_METRICS_H_
#define QUIRE_SERVING_SPAN_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "base/span_queue.h"

namespace quire {

// The spans that this process has exported, and those that it had to drop. Thread-safe.
class SpanMetrics : public prometheus::Collectable {
 public:
  // The queue must outlive it.
  explicit SpanMetrics(const SpanQueue* queue) : queue_(queue) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const SpanQueue* const queue_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_SPAN_METRICS_H_
