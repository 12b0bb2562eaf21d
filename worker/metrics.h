// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_METRICS_H_
#define QUIRE_WORKER_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "worker/model/load_progress.h"
#include "worker/worker_stats.h"

namespace quire {

// The constants of a worker that appear in its metrics.
struct MetricsInfo {
  std::string version;
  std::string model_name;
  std::string device;
  uint32_t num_blocks;
  uint32_t num_host_blocks;
  uint64_t block_bytes;  // Summed over all layers.
  int block_size;
  int max_sequences;
};

// The metrics of a worker that it shows from its start, while it loads its model. Thread-safe. `progress` must outlive
// it.
class LoadMetrics : public prometheus::Collectable {
 public:
  explicit LoadMetrics(const LoadProgress* progress) : progress_(progress) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const LoadProgress* const progress_;
};

// The memory of a device that is not that of the host.
struct DeviceBytes {
  size_t total;
  size_t free;
};

// The metrics of the memory of a GPU. It asks in every scrape, in the thread that serves it. Thread-safe if `ask` is.
class DeviceMetrics : public prometheus::Collectable {
 public:
  explicit DeviceMetrics(std::function<DeviceBytes()> ask) : ask_(std::move(ask)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<DeviceBytes()> ask_;
};

// The exchanges of a rank with the others of its group. Thread-safe. `stats` must outlive it.
class RankMetrics : public prometheus::Collectable {
 public:
  explicit RankMetrics(const WorkerStats* stats) : stats_(stats) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const WorkerStats* const stats_;
};

// All other metrics of the worker. All values of a scrape come from one snapshot, so they belong to the same moment.
// Thread-safe. `stats` must outlive it.
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
