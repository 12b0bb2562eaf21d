// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu_report.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

namespace quire::cuda {

GpuReport::GpuReport(const CudaDevice& device, const std::string& json)
    : json_(json), device_(device.Description()), numerics_(device.NumericsFingerprint()) {
  std::printf("%s\n", numerics_.c_str());
  std::printf("median of runs, least and most; GB/s of what must be moved at least, and its share of a device copy\n");
}

void GpuReport::Add(const GpuResult& result) {
  if (result.group != last_group_) std::printf("\n%s\n", result.group.c_str());
  last_group_ = result.group;
  const double bytes_per_second = result.bytes / result.time.median;
  if (result.group == "copy" && copy_bytes_per_second_ == 0) copy_bytes_per_second_ = bytes_per_second;
  std::printf("  %-44s %10.2f us (%.2f .. %.2f)", result.name.c_str(), 1e6 * result.time.median,
              1e6 * result.time.least, 1e6 * result.time.most);
  if (result.bytes > 0) {
    std::printf("  %7.0f GB/s %4.0f %%", 1e-9 * bytes_per_second, 100 * bytes_per_second / copy_bytes_per_second_);
  }
  if (result.flops > 0) std::printf("  %7.1f TFLOP/s", 1e-12 * result.flops / result.time.median);
  if (result.compared > 0) std::printf("  %.2f of 16 bits", result.time.median / result.compared);
  std::printf("\n");
  std::fflush(stdout);
  results_.push_back(result);
  if (!json_.empty()) WriteJson();
}

double GpuReport::SecondsOf(const std::string& group, const std::string& name) const {
  const auto has_name = [&](const GpuResult& result) { return result.group == group && result.name == name; };
  const auto found = std::find_if(results_.begin(), results_.end(), has_name);
  return found == results_.end() ? 0 : found->time.median;
}

void GpuReport::Skip(const std::string& group, const std::string& name, const std::string& reason) {
  std::printf("  %s, %s: skipped, %s\n", group.c_str(), name.c_str(), reason.c_str());
}

void GpuReport::WriteJson() {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const GpuResult& result : results_) {
    nlohmann::ordered_json row = {{"group", result.group},
                                  {"name", result.name},
                                  {"median_us", 1e6 * result.time.median},
                                  {"least_us", 1e6 * result.time.least},
                                  {"most_us", 1e6 * result.time.most},
                                  {"runs", result.time.num_runs}};
    if (result.bytes > 0) row["gbytes_per_s"] = 1e-9 * result.bytes / result.time.median;
    if (result.bytes > 0) row["share_of_copy"] = result.bytes / result.time.median / copy_bytes_per_second_;
    if (result.flops > 0) row["tflops"] = 1e-12 * result.flops / result.time.median;
    if (result.compared > 0) row["of_16_bits"] = result.time.median / result.compared;
    results.push_back(std::move(row));
  }
  std::ofstream out(json_);
  out << nlohmann::ordered_json{{"device", device_}, {"numerics", numerics_}, {"results", results}}.dump(2) << "\n";
  is_written_ = bool(out.flush());
}

}  // namespace quire::cuda
