// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_HOST_ARRAY_H_
#define QUIRE_WORKER_HOST_ARRAY_H_

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device_memory.h"

namespace quire {

// An array of plain values in host memory that operations of a backend write (DeviceMemory::AllocateHost). When it
// grows, it loses its values.
template <typename T>
class HostArray {
 public:
  // `use` names the array's use in the error. `device` must outlive the array.
  HostArray(DeviceMemory* device, const char* use) : device_(device), use_(use) {}
  HostArray(const HostArray&) = delete;
  HostArray& operator=(const HostArray&) = delete;
  ~HostArray() { Free(); }

  // Makes room for `size` values. Returns RESOURCE_EXHAUSTED when there is not enough memory, and the array is empty
  // then. REQUIRES: no queued operation writes the array.
  absl::Status Reserve(size_t size) {
    if (size <= capacity_) return absl::OkStatus();
    const size_t capacity = std::max(size, 2 * capacity_);
    Free();
    data_ = static_cast<T*>(device_->AllocateHost(capacity * sizeof(T)));
    if (data_ == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat("no memory for ", use_, ": ", capacity * sizeof(T), " bytes"));
    }
    capacity_ = capacity;
    return absl::OkStatus();
  }

  T* data() const { return data_; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  void Free() {
    if (data_ != nullptr) device_->FreeHost(data_);
    data_ = nullptr;
    capacity_ = 0;
  }

  DeviceMemory* const device_;
  const char* const use_;
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_HOST_ARRAY_H_
