#ifndef QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
#define QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/device.h"
#include "kernels/cuda/fatal.h"

namespace quire::cuda {

// Memory of the device that grows when more is wanted, and then loses what it held. The device must outlive it.
class DeviceBuffer {
 public:
  // `what` names the use in the error.
  DeviceBuffer(Device* device, const char* what) : device_(device), what_(what) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) device_->Free(memory_);
  }

  template <typename T>
  T* Reserve(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > capacity_) Grow(bytes);
    return static_cast<T*>(memory_);
  }

 private:
  void Grow(size_t bytes) {
    device_->Synchronize();  // Work that was queued may use the old one.
    if (memory_ != nullptr) device_->Free(memory_);
    capacity_ = std::max(bytes, 2 * capacity_);
    memory_ = device_->Allocate(capacity_);
    if (memory_ == nullptr) memory_ = device_->Allocate(capacity_ = bytes);  // Without any to spare.
    if (memory_ == nullptr) Fatal("no memory for %s: %zu bytes", what_, capacity_);
  }

  Device* const device_;
  const char* const what_;
  void* memory_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
