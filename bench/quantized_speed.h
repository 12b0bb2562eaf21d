// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_QUANTIZED_SPEED_H_
#define QUIRE_BENCH_QUANTIZED_SPEED_H_

#include <functional>
#include <string>

#include "bench/gpu_report.h"
#include "bench/gpu_timer.h"

namespace quire::cuda {

constexpr char kProductGroup[] = "multiplication";
// The numbers of rows of the products that are measured.
constexpr int kProductRows[] = {1, 8, 16, 32, 64, 128, 256, 512, 2048};

// A matrix of a model of 8 B parameters.
struct ModelMatrix {
  const char* name;
  int num_columns, depth;

  // The name of a product in the report, for example "8 rows by qkv, 6144 x 4096".
  std::string ProductName(int num_rows) const {
    return std::to_string(num_rows) + " rows by " + name + ", " + std::to_string(num_columns) + " x " +
           std::to_string(depth);
  }
};

constexpr ModelMatrix kModelMatrices[] = {
    {"qkv", 6144, 4096}, {"attention out", 4096, 4096}, {"gate and up", 28672, 4096}, {"down", 4096, 14336}};

// Measures the products by quantized matrices for which `wants(group, name)` is true, as the backend queues them, and
// compares each with the product by 16-bit weights if the report has that.
void MeasureQuantizedProducts(CudaDevice* device, bool exact,
                              const std::function<bool(const std::string&, const std::string&)>& wants, GpuTimer* timer,
                              GpuReport* report);

}  // namespace quire::cuda

#endif  // QUIRE_BENCH_QUANTIZED_SPEED_H_
