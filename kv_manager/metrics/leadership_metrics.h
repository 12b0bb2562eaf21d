// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_METRICS_LEADERSHIP_METRICS_H_
#define QUIRE_KV_MANAGER_METRICS_LEADERSHIP_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <functional>
#include <utility>
#include <vector>

#include "kv_manager/leadership/election.h"

namespace quire {

// Says whether this manager leads. Thread-safe.
class LeadershipMetrics : public prometheus::Collectable {
 public:
  // `status` may be called on any thread.
  explicit LeadershipMetrics(std::function<ElectionStatus()> status) : status_(std::move(status)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<ElectionStatus()> status_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_LEADERSHIP_METRICS_H_
