// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
#define QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/device.h"
#include "kernels/cuda/fatal.h"

namespace quire::cuda {

// Whether recordings (Device::BeginRecording) may use a piece of memory. They are lost when it is freed.
enum class Recorded { kYes, kNever };

inline void FreeOnDevice(Device* device, void* memory, Recorded recorded) {
  if (recorded == Recorded::kYes) {
    device->Free(memory);
  } else {
    device->FreeUnrecorded(memory);
  }
}

// Device memory that grows on demand. Growing loses the contents. The device must outlive the buffer.
class DeviceBuffer {
 public:
  // `what` names the buffer's purpose in the error message.
  DeviceBuffer(Device* device, const char* what, Recorded recorded = Recorded::kYes)
      : device_(device), what_(what), recorded_(recorded) {}
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() {
    if (memory_ != nullptr) FreeOnDevice(device_, memory_, recorded_);
  }

  template <typename T>
  T* Reserve(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > capacity_ && !Take(std::max(bytes, 2 * capacity_)) && !Take(bytes)) {
      Fatal("no memory for %s: %zu bytes", what_, bytes);
    }
    return static_cast<T*>(memory_);
  }
  // Makes room without any to spare. Returns false, and has no memory, when there is not enough.
  template <typename T>
  bool TryReserve(size_t count) {
    return count * sizeof(T) <= capacity_ || Take(count * sizeof(T));
  }

 private:
  bool Take(size_t bytes) {
    if (memory_ != nullptr) {
      device_->Synchronize();  // Queued work may still use the old memory.
      FreeOnDevice(device_, memory_, recorded_);
    }
    memory_ = device_->Allocate(bytes);
    capacity_ = memory_ == nullptr ? 0 : bytes;
    return memory_ != nullptr;
  }

  Device* const device_;
  const char* const what_;
  const Recorded recorded_;
  void* memory_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_DEVICE_BUFFER_H_
