// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_GPU_TIMER_H_
#define QUIRE_BENCH_GPU_TIMER_H_

#include <functional>
#include <memory>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_array.h"

namespace quire::cuda {

// Seconds of one call, from several runs.
struct GpuTime {
  double median = 0;
  double least = 0;
  double most = 0;
  int num_runs = 0;
};

// Times work on the device with the device's own events. A run is a recording of enough calls to take a few
// milliseconds. Therefore the host's time to queue them is not measured, and the distance between two events has little
// influence.
class GpuTimer {
 public:
  explicit GpuTimer(CudaDevice* device);
  ~GpuTimer();
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // `call(i)` queues call i. Two calls with the same data must be separated by more data than the caches hold; see
  // CopiesToFillCaches(). A call before the recording does everything that is done once per shape.
  GpuTime Time(const std::function<void(int)>& call);
  // Like Time for work that cannot be recorded: calls are queued one by one, and each must be long.
  GpuTime TimeWithoutRecording(const std::function<void(int)>& call);

  // Returns how many copies of `bytes` bytes must be used in turn, so that each copy has left the second-level cache
  // when it is used again.
  int CopiesToFillCaches(size_t bytes) const;

 private:
  // Returns the seconds between two events around the work. The device is kept busy until all of the work is queued,
  // which also fills its caches with other data.
  double Seconds(const std::function<void()>& work);
  std::unique_ptr<Graph> Record(const std::function<void(int)>& call, int num_calls);

  CudaDevice* const device_;
  DeviceArray<char> busy_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

}  // namespace quire::cuda

#endif  // QUIRE_BENCH_GPU_TIMER_H_
