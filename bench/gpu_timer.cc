// SPDX-License-Identifier: Apache-2.0

#include "bench/gpu_timer.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/fatal.h"

namespace quire::cuda {
namespace {

constexpr int kRuns = 11;
constexpr double kRunSeconds = 4e-3;
constexpr int kMaxCalls = 1000;  // Limit per recording.
constexpr int kFirstCalls = 4;   // Calls of the first recording, which estimates the time of a call.
constexpr size_t kCacheMultiple = 4;
constexpr size_t kBusyBytes = 256 << 20;
constexpr int kBusyFills = 16;

GpuTime Summary(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return {.median = seconds[seconds.size() / 2],
          .least = seconds.front(),
          .most = seconds.back(),
          .num_runs = int(seconds.size())};
}

}  // namespace

GpuTimer::GpuTimer(CudaDevice* device) : device_(device), busy_(device, kBusyBytes) {
  CheckCuda(cudaEventCreate(&start_), "cudaEventCreate");
  CheckCuda(cudaEventCreate(&end_), "cudaEventCreate");
}

GpuTimer::~GpuTimer() {
  CheckCuda(cudaEventDestroy(start_), "cudaEventDestroy");
  CheckCuda(cudaEventDestroy(end_), "cudaEventDestroy");
}

int GpuTimer::CopiesToFillCaches(size_t bytes) const {
  return int(kCacheMultiple * device_->l2_bytes() / std::max<size_t>(bytes, 1)) + 1;
}

double GpuTimer::Seconds(const std::function<void()>& work) {
  for (int i = 0; i < kBusyFills; ++i) {
    CheckCuda(cudaMemsetAsync(busy_.data(), 0, busy_.size(), device_->stream()), "cudaMemsetAsync");
  }
  CheckCuda(cudaEventRecord(start_, device_->stream()), "cudaEventRecord");
  work();
  CheckCuda(cudaEventRecord(end_, device_->stream()), "cudaEventRecord");
  device_->Synchronize();
  float milliseconds = 0;
  CheckCuda(cudaEventElapsedTime(&milliseconds, start_, end_), "cudaEventElapsedTime");
  return milliseconds * 1e-3;
}

std::unique_ptr<Graph> GpuTimer::Record(const std::function<void(int)>& call, int num_calls) {
  device_->BeginRecording();
  for (int i = 0; i < num_calls; ++i) call(i);
  std::unique_ptr<Graph> graph = device_->EndRecording();
  if (graph == nullptr) Fatal("no memory for a recording of %d calls", num_calls);
  return graph;
}

GpuTime GpuTimer::Time(const std::function<void(int)>& call) {
  call(0);
  device_->Synchronize();
  std::unique_ptr<Graph> graph = Record(call, kFirstCalls);
  const auto run = [&] { device_->Replay(*graph); };
  Seconds(run);  // The first replay also copies the graph to the device.
  const double estimate = Seconds(run) / kFirstCalls;
  const int num_calls = std::clamp(int(kRunSeconds / std::max(estimate, 1e-9)), 1, kMaxCalls);
  graph = Record(call, num_calls);
  Seconds(run);
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) seconds.push_back(Seconds(run) / num_calls);
  return Summary(std::move(seconds));
}

GpuTime GpuTimer::TimeWithoutRecording(const std::function<void(int)>& call) {
  Seconds([&] { call(0); });
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) seconds.push_back(Seconds([&] { call(i); }));
  return Summary(std::move(seconds));
}

}  // namespace quire::cuda
