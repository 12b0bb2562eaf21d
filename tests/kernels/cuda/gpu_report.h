#ifndef QUIRE_TESTS_KERNELS_CUDA_GPU_REPORT_H_
#define QUIRE_TESTS_KERNELS_CUDA_GPU_REPORT_H_

#include <string>
#include <vector>

#include "tests/kernels/cuda/gpu_timer.h"

namespace quire::cuda {

// One measurement. `bytes` is the least that must be moved, with each input read once. 0 flops: not of interest.
struct GpuResult {
  std::string group;  // "decode attention"
  std::string name;   // "64 at 4096, 32/8 heads of 128"
  GpuTime time;
  double bytes = 0;
  double flops = 0;
};

// Prints results line by line as a table on standard output, and writes them as JSON.
class GpuReport {
 public:
  explicit GpuReport(const CudaDevice& device);

  void Add(const GpuResult& result);
  // Prints a line about a measurement that was left out.
  void Skip(const std::string& group, const std::string& name, const std::string& reason);
  // Bandwidths are compared with the first result of group "copy".
  double copy_bytes_per_second() const { return copy_bytes_per_second_; }

  // Returns false when the file cannot be written.
  bool WriteJson(const std::string& path) const;

 private:
  std::string device_;
  std::string numerics_;
  std::string last_group_;
  double copy_bytes_per_second_ = 0;
  std::vector<GpuResult> results_;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_GPU_REPORT_H_
