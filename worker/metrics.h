#ifndef QUIRE_WORKER_METRICS_H_
#define QUIRE_WORKER_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/worker_stats.h"

namespace quire {

// Constants of the worker that its metrics show.
struct MetricsInfo {
  std::string version;
  std::string model_name;
  std::string device;
  uint32_t num_blocks;
  uint32_t num_host_blocks;
  uint64_t block_bytes;  // All layers.
  int block_size;
  int max_sequences;
};

// Every metric of the worker, and the only place that knows their names. A scrape shows one moment: all values come
// from one snapshot. Thread-safe; `stats` must outlive it.
class WorkerMetrics : public prometheus::Collectable {
 public:
  WorkerMetrics(const WorkerStats* stats, MetricsInfo info);

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const WorkerStats* const stats_;
  const MetricsInfo info_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_METRICS_H_
