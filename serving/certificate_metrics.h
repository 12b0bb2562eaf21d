// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SERVING_CERTIFICATE_METRICS_H_
#define QUIRE_SERVING_CERTIFICATE_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

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

}  // namespace quire

#endif  // QUIRE_SERVING_CERTIFICATE_METRICS_H_
