// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
#define QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/device.h"
#include "kernels/cuda/fatal.h"

namespace quire::cuda {

// Device memory that grows on demand. Growing loses the contents. The device must outlive the buffer.
class DeviceBuffer {
 public:
  // `what` names the buffer's purpose in the error message.
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
    device_->Synchronize();  // Queued work may still use the old memory.
    if (memory_ != nullptr) device_->Free(memory_);
    capacity_ = std::max(bytes, 2 * capacity_);
    memory_ = device_->Allocate(capacity_);
    if (memory_ == nullptr) memory_ = device_->Allocate(capacity_ = bytes);  // Tries again without spare room.
    if (memory_ == nullptr) Fatal("no memory for %s: %zu bytes", what_, capacity_);
  }

  Device* const device_;
  const char* const what_;
  void* memory_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
