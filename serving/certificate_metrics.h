#ifndef QUIRE_SERVING_CERTIFICATE_METRICS_H_
#define QUIRE_SERVING_CERTIFICATE_METRICS_H_

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace quire {

// Shows until when the certificates of this process are valid, as their files say at the time of a scrape. Thread-safe.
class CertificateMetrics : public prometheus::Collectable {
 public:
  struct File {
    std::string use;   // Value of the label `use`.
    std::string path;  // PEM; "": there is no certificate for this use.
  };

  explicit CertificateMetrics(std::vector<File> files) : files_(std::move(files)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::vector<File> files_;
};

}  // namespace quire

#endif  // QUIRE_SERVING_CERTIFICATE_METRICS_H_
