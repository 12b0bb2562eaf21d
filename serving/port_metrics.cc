// SPDX-License-Identifier: Apache-2.0

#include "serving/port_metrics.h"

#include <string>

namespace quire {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

void Add(MetricFamily* family, std::vector<prometheus::ClientMetric::Label> labels, double value) {
  prometheus::ClientMetric& metric = family->metric.emplace_back();
  metric.label = std::move(labels);
  (family->type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

}  // namespace

std::vector<MetricFamily> PortMetrics::Collect() const {
  MetricFamily listening{"quire_port_listening", "1 while the port takes connections", MetricType::Gauge, {}};
  MetricFamily connections{
      "quire_port_connections", "Open connections, with the one that reads this", MetricType::Gauge, {}};
  MetricFamily limit{"quire_port_max_connections", "Limit of quire_port_connections", MetricType::Gauge, {}};
  MetricFamily refused{"quire_port_refused_connections_total",
                       "Connections that were closed at once. limit: the port had its maximum of connections; files: "
                       "the process had no file descriptors left",
                       MetricType::Counter,
                       {}};
  MetricFamily ended{"quire_port_ended_connections_total",
                     "Connections that were closed because the client sent what no honest client sends, or because its "
                     "calls held too much memory. The log says why",
                     MetricType::Counter,
                     {}};
  MetricFamily anew{"quire_port_listened_again_total",
                    "How often the port took no connections and was opened again",
                    MetricType::Counter,
                    {}};
  for (const PortStats& port : read_()) {
    Add(&listening, {{"port", port.port}}, port.is_listening);
    Add(&connections, {{"port", port.port}}, port.connections);
    Add(&limit, {{"port", port.port}}, port.max_connections);
    Add(&refused, {{"port", port.port}, {"reason", "limit"}}, static_cast<double>(port.refused_at_limit));
    Add(&refused, {{"port", port.port}, {"reason", "files"}}, static_cast<double>(port.refused_for_files));
    Add(&ended, {{"port", port.port}}, static_cast<double>(port.ended));
    Add(&anew, {{"port", port.port}}, static_cast<double>(port.listened_again));
  }
  return {listening, connections, limit, refused, ended, anew};
}

}  // namespace quire
