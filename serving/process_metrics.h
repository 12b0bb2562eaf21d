// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_PROCESS_METRICS_H_
#define QUIRE_SERVING_PROCESS_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

#include "base/span_queue.h"
#include "base/watched_file.h"

namespace quire {

// A metric with the expiry of each certificate of this process. Every scrape reads the files. Thread-safe.
class CertificateMetrics : public prometheus::Collectable {
 public:
  struct File {
    std::string use;   // The value of the label `use`.
    std::string path;  // A PEM file, or empty when there is no certificate for this use.
  };

  explicit CertificateMetrics(std::vector<File> files) : files_(std::move(files)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::vector<File> files_;
};

// The metrics of this process's log. Thread-safe.
class LogMetrics : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override;
};

// The spans that this process has exported, and those that it had to drop. Thread-safe.
class SpanMetrics : public prometheus::Collectable {
 public:
  // The queue must outlive it.
  explicit SpanMetrics(const SpanQueue* queue) : queue_(queue) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const SpanQueue* const queue_;
};

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

#endif  // QUIRE_SERVING_PROCESS_METRICS_H_
