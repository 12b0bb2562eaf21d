// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_GPU_REPORT_H_
#define QUIRE_BENCH_GPU_REPORT_H_

#include <string>
#include <vector>

#include "bench/gpu_timer.h"

namespace quire::cuda {

// One measurement. `bytes` is the least that must be moved, with each input read once. 0 flops: not of interest.
struct GpuResult {
  std::string group;  // "decode attention"
  std::string name;   // "64 at 4096, 32/8 heads of 128"
  GpuTime time;
  double bytes = 0;
  double flops = 0;
  double compared = 0;  // Seconds of the same work by 16-bit weights; 0: not known.
};

// Prints results line by line as a table on standard output, and writes them as JSON.
class GpuReport {
 public:
  // The file `json` is written again with every result, so that a run that is stopped leaves what it has measured. An
  // empty name means none.
  GpuReport(const CudaDevice& device, const std::string& json);

  void Add(const GpuResult& result);
  // Returns the median of a result that was added before, and 0 if there is none of this name.
  double SecondsOf(const std::string& group, const std::string& name) const;
  // Prints a line about a measurement that was left out.
  void Skip(const std::string& group, const std::string& name, const std::string& reason);

  // Returns whether all results are in the file.
  bool is_written() const { return is_written_; }

 private:
  void WriteJson();

  const std::string json_;
  std::string device_;
  std::string numerics_;
  std::string last_group_;
  double copy_bytes_per_second_ = 0;  // Of the first result of group "copy".
  bool is_written_ = true;
  std::vector<GpuResult> results_;
};

}  // namespace quire::cuda

#endif  // QUIRE_BENCH_GPU_REPORT_H_
