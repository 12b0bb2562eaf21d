// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/metrics/leadership_metrics.h"

#include <string>

namespace quire {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

MetricFamily Family(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return family;
}

}  // namespace

std::vector<MetricFamily> LeadershipMetrics::Collect() const {
  const ElectionStatus status = status_();
  return {
      Family("quire_manager_is_leader", "1 while this manager leads, 0 while it stands by", MetricType::Gauge,
             status.is_leader ? 1 : 0),
      Family("quire_manager_term",
             "Term of this manager, which is greater than the term of every earlier leader; 0 before it has led",
             MetricType::Gauge, static_cast<double>(status.term)),
      Family(
          "quire_manager_lease_failures_total",
          "Calls to etcd or to the API server of Kubernetes that have failed while this manager wanted to read, take "
          "or renew the lease",
          MetricType::Counter, static_cast<double>(status.failed_calls)),
  };
}

}  // namespace quire
