// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_WATCHED_FILE_METRICS_H_
#define QUIRE_SERVING_WATCHED_FILE_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <utility>
#include <vector>

#include "base/watched_file.h"

namespace quire {

// Whether the files that this process reads again are right. Thread-safe.
class WatchedFileMetrics : public prometheus::Collectable {
 public:
  // The files must outlive it.
  explicit WatchedFileMetrics(std::vector<const WatchedFile*> files) : files_(std::move(files)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::vector<const WatchedFile*> files_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_WATCHED_FILE_METRICS_H_
