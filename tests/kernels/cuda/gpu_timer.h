#ifndef QUIRE_TESTS_KERNELS_CUDA_GPU_TIMER_H_
#define QUIRE_TESTS_KERNELS_CUDA_GPU_TIMER_H_

#include <functional>
#include <memory>

#include "kernels/cuda/cuda_device.h"
#include "tests/kernels/cuda/device_array.h"

namespace quire::cuda {

// Seconds of one call, of several runs.
struct GpuTime {
  double median = 0;
  double least = 0;
  double most = 0;
  int num_runs = 0;
};

// Times work on the device by its own events. A run is a recording of so many calls that it takes a few milliseconds:
// what the host needs to queue them is not measured, nor is the distance between two events of much weight.
class GpuTimer {
 public:
  explicit GpuTimer(CudaDevice* device);
  ~GpuTimer();
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // `call(i)` queues call i. Between two calls with the same data there must be more data than the caches hold: see
  // CopiesToFillCaches(). Everything that is done once for a shape is done in a call before the recording.
  GpuTime Time(const std::function<void(int)>& call);
  // The same for what cannot be recorded: calls are queued one by one, and each is long.
  GpuTime TimeWithoutRecording(const std::function<void(int)>& call);

  // How many copies of so many bytes must take turns, so that each is out of the second-level cache when its turn
  // comes.
  int CopiesToFillCaches(size_t bytes) const;

 private:
  // Seconds between two events around it. The device is kept busy until all of it is queued, and its caches have
  // something else in them then.
  double Seconds(const std::function<void()>& work);
  std::unique_ptr<Graph> Record(const std::function<void(int)>& call, int num_calls);

  CudaDevice* const device_;
  DeviceArray<char> busy_;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_GPU_TIMER_H_
