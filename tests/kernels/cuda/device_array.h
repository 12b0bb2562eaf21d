// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_
#define QUIRE_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/cuda/device.h"

namespace quire::cuda {

// An array in the memory of a device. The device must outlive it.
template <typename T>
class DeviceArray {
 public:
  // The array contains zeros.
  DeviceArray(Device* device, size_t size) : device_(device), size_(size) {
    data_ = static_cast<T*>(device->Allocate(size * sizeof(T)));
    if (data_ == nullptr) Refuse();
  }
  DeviceArray(Device* device, const std::vector<T>& values) : DeviceArray(device, values.size()) { Upload(values); }
  ~DeviceArray() { device_->Free(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return size_; }

  // Repeats the values until the array is full.
  void Upload(const std::vector<T>& values) {
    if (values.empty()) return;
    T* const staging = Staging(values.size());
    std::memcpy(static_cast<void*>(staging), values.data(), values.size() * sizeof(T));
    for (size_t at = 0; at < size_; at += values.size()) {
      device_->Copy(data_ + at, staging, std::min(values.size(), size_ - at) * sizeof(T));
    }
    device_->Synchronize();
    device_->FreeHost(staging);
  }

  // Returns the contents after all queued work is done.
  std::vector<T> Download() const {
    std::vector<T> values(size_);
    T* const staging = Staging(size_);
    device_->Copy(staging, data_, size_ * sizeof(T));
    device_->Synchronize();
    if (size_ > 0) std::memcpy(static_cast<void*>(values.data()), staging, size_ * sizeof(T));
    device_->FreeHost(staging);
    return values;
  }

 private:
  T* Staging(size_t count) const {
    T* const staging = static_cast<T*>(device_->AllocateHost(count * sizeof(T)));
    if (staging == nullptr) Refuse();
    return staging;
  }
  [[noreturn]] void Refuse() const {
    std::fprintf(stderr, "not enough memory for an array of %zu bytes\n", size_ * sizeof(T));
    std::exit(EXIT_FAILURE);
  }

  Device* const device_;
  const size_t size_;
  T* data_ = nullptr;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_DEVICE_ARRAY_H_
